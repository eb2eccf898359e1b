"""The operator's web page: cards as stacked bars and claims with their reasons, live, for people with a browser.

It reads and changes nothing. ``sources`` says what there is, ``frame`` turns that into JSON (pure), ``server`` hands it
to browsers, and ``static/`` draws it there: no build step, nothing from elsewhere.
"""
