{{- /* The settings that all services share, as a map; the test pod and the hook take them, too. */ -}}
{{- define "threadlog.settings" -}}
THREADLOG_DATA_DIR: /var/lib/threadlog/data
THREADLOG_KAFKA__BOOTSTRAP: {{ .Values.kafka.bootstrapServers | quote }}
THREADLOG_KAFKA__PREFIX: {{ .Values.kafka.prefix | quote }}
THREADLOG_KAFKA__PARTITIONS: {{ .Values.kafka.partitions | int64 | toString | quote }}
THREADLOG_KAFKA__REPLICATION: {{ .Values.kafka.replication | int64 | toString | quote }}
THREADLOG_KAFKA__SECURITY_PROTOCOL: {{ include "threadlog.securityProtocol" . }}
{{- if and .Values.kafka.tls.enabled .Values.kafka.tls.caSecret }}
THREADLOG_KAFKA__SSL_CA: /etc/threadlog/kafka-ca/ca.crt
{{- end }}
{{- with .Values.kafka.sasl }}
{{- if .mechanism }}
THREADLOG_KAFKA__SASL_MECHANISM: {{ .mechanism }}
THREADLOG_KAFKA__SASL_USERNAME: {{ .username | quote }}
THREADLOG_KAFKA__SASL_PASSWORD_FILE: /etc/threadlog/kafka/password
{{- end }}
{{- end }}
{{- if .Values.redis.existingSecret }}
THREADLOG_REDIS__URL_FILE: /etc/threadlog/redis/url
{{- else }}
THREADLOG_REDIS__URL: {{ .Values.redis.url | quote }}
{{- end }}
THREADLOG_BLOBS__URL: file:///var/lib/threadlog/blobs
THREADLOG_METRICS__HOST: {{ .Values.listenAddress | quote }}
THREADLOG_WORKER__DRAIN_TIMEOUT_MS: {{ mul .Values.drainTimeoutSeconds 1000 | toString | quote }}
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "threadlog.securityProtocol" -}}
{{- $sasl := .Values.kafka.sasl.mechanism | empty | ternary "" "SASL_" -}}
{{- printf "%s%s" $sasl (.Values.kafka.tls.enabled | ternary "SSL" "PLAINTEXT") -}}
{{- end -}}

{{- /* Names under which the gateway is asked. */ -}}
{{- define "threadlog.hosts" -}}
{{- $name := printf "%s-gateway" (include "threadlog.fullname" .) -}}
{{- $space := printf "%s.%s" $name .Release.Namespace -}}
{{- $service := list $name $space (printf "%s.svc" $space) (printf "%s.svc.cluster.local" $space) -}}
{{- concat $service (.Values.ingress.enabled | ternary .Values.ingress.hosts list) .Values.gateway.hosts | uniq | join "," -}}
{{- end -}}

{{- /* Environment of one service beside the shared settings: {root, name, port}. */ -}}
{{- define "threadlog.ownEnv" -}}
{{- $values := .root.Values -}}
- {name: HOME, value: /tmp}
- {name: THREADLOG_METRICS__PORT, value: {{ .port | int64 | toString | quote }}}
{{- if eq .name "gateway" }}
{{ include "threadlog.gatewayEnv" .root }}
{{- else if eq .name "planner" }}
{{ include "threadlog.modelEnv" .root }}
{{- else if eq .name "tool-runner" }}
{{ include "threadlog.sandboxEnv" .root }}
{{- end }}
{{- end -}}

{{- define "threadlog.gatewayEnv" -}}
{{- $gateway := .Values.gateway -}}
- {name: THREADLOG_GATEWAY__HOST, value: {{ .Values.listenAddress | quote }}}
- {name: THREADLOG_GATEWAY__PORT, value: "8080"}
- {name: THREADLOG_GATEWAY__KEYS_FILE, value: {{ include "threadlog.keysFile" . | quote }}}
- {name: THREADLOG_GATEWAY__HOSTS, value: {{ include "threadlog.hosts" . | quote }}}
- {name: THREADLOG_GATEWAY__REQUESTS_PER_MINUTE, value: {{ $gateway.requestsPerMinute | int64 | toString | quote }}}
- {name: THREADLOG_GATEWAY__STREAMS_PER_TENANT, value: {{ $gateway.streamsPerTenant | int64 | toString | quote }}}
{{- with $gateway.origins }}
- {name: THREADLOG_GATEWAY__ORIGINS, value: {{ join "," . | quote }}}
{{- end }}
{{- with .Values.models.allowed }}
- {name: THREADLOG_GATEWAY__MODELS, value: {{ join "," . | quote }}}
{{- end }}
{{- with .Values.models.default }}
- {name: THREADLOG_MODEL, value: {{ . | quote }}}
{{- end }}
{{- end -}}

{{- define "threadlog.keysFile" -}}
{{- .Values.gateway.keys.existingSecret | empty | ternary "/var/lib/threadlog/keys" "/etc/threadlog/keys" }}/{{ .Values.gateway.keys.file -}}
{{- end -}}

{{- /* Keys of models are for planners alone. Their SDKs read the environment only. */ -}}
{{- define "threadlog.modelEnv" -}}
{{- range $name, $provider := pick .Values.models "openai" "anthropic" }}
{{- if $provider.existingSecret }}
- name: {{ upper $name }}_API_KEY
  valueFrom: {secretKeyRef: {name: {{ $provider.existingSecret }}, key: {{ $provider.secretKey }}}}
{{- end }}
{{- if $provider.baseUrl }}
- {name: {{ upper $name }}_BASE_URL, value: {{ $provider.baseUrl | quote }}}
{{- end }}
{{- end }}
{{- if .Values.models.prices }}
- {name: THREADLOG_PRICES, value: /etc/threadlog/prices/prices.json}
{{- end }}
{{- end -}}

{{- define "threadlog.sandboxEnv" -}}
- {name: THREADLOG_TOOL_RUNNER__WORKSPACES, value: /var/lib/threadlog/workspaces}
- {name: THREADLOG_SANDBOX, value: {{ .Values.toolRunner.sandbox.disabled | ternary "off" "bubblewrap" | quote }}}
{{- end -}}

{{- /* The shared settings as a list of variables, for pods that start before the ConfigMap exists. */ -}}
{{- define "threadlog.inlineEnv" -}}
{{- range $name, $value := (include "threadlog.settings" . | fromYaml) }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}
