{{- define "shop.image" -}}
{{ .root.Values.registry }}/shop/{{ .name }}:{{ .root.Values.tag }}
{{- end -}}
