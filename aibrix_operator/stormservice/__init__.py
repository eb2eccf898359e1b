"""StormServices, their RoleSets and PodSets: services of several roles, rolled out with care."""
