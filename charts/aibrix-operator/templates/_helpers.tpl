{{- define "aibrix.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Of every object. */}}
{{- define "aibrix.labels" -}}
app.kubernetes.io/name: aibrix-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Call with (list $ "component"): metadata of one of a component's objects. */}}
{{- define "aibrix.metadata" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
name: {{ include "aibrix.name" (list $root $component) }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "aibrix.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ $component }}
{{- with $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Call with (list $ "component"). The operator's objects carry the release's name alone. */}}
{{- define "aibrix.name" -}}
{{- $base := include "aibrix.fullname" (index . 0) -}}
{{- if eq (index . 1) "operator" -}}{{ $base }}{{- else -}}{{ $base }}-{{ index . 1 }}{{- end -}}
{{- end -}}

{{/* Call with (list $ "component"). They never change: a Deployment's selector cannot. */}}
{{- define "aibrix.selector" -}}
app.kubernetes.io/name: aibrix-operator
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Call with (list image "default tag"). */}}
{{- define "aibrix.image" -}}
{{- $image := index . 0 -}}
{{- $image.repository }}:{{ $image.tag | default (index . 1) }}{{ with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "aibrix.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "aibrix.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The ServiceAccount's token, for the one container that speaks to the API server. */}}
{{- define "aibrix.apiAccessVolume" -}}
- name: api-access
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end -}}

{{- define "aibrix.apiAccessMount" -}}
- name: api-access
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{/* Call with (list $ values "component"): where a component's Pods go. */}}
{{- define "aibrix.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "aibrix.selector" (list $root (index . 2)) | nindent 8 }}
{{- end -}}

{{/* Call with (list $ values "component"): metadata of a component's Pods. */}}
{{- define "aibrix.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
labels:
  {{- include "aibrix.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) $values.podAnnotations $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "aibrix.runtimeTokenSecret" -}}
{{- .Values.runtimeToken.existingSecret | default (printf "%s-runtime-token" (include "aibrix.fullname" .)) -}}
{{- end -}}

{{/* The namespaces of warm Pods, as a JSON list. */}}
{{- define "aibrix.poolNamespaces" -}}
{{- .Values.warmPools.namespaces | default (list (.Values.scope.namespace | default .Release.Namespace)) | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- define "aibrix.redisSecret" -}}
{{- if .Values.redis.existingSecret -}}
{{- .Values.redis.existingSecret -}}
{{- else if .Values.redis.enabled -}}
{{- include "aibrix.name" (list . "redis") -}}
{{- end -}}
{{- end -}}
