{{- /* Everything that a schema cannot say, all of it at once, each with what to do. */ -}}
{{- define "threadlog.validate" -}}
{{- $wrong := list -}}
{{- range list "kafka" "stores" "gateway" "workers" "sandbox" "network" -}}
{{- range include (printf "threadlog.validate.%s" .) $ | splitList "\n" -}}
{{- with trim . }}{{ $wrong = append $wrong . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with $wrong -}}
{{- fail (printf "these values cannot work:\n- %s\n" (join "\n- " .)) -}}
{{- end -}}
{{- end -}}

{{- define "threadlog.validate.kafka" -}}
{{- with .Values.kafka -}}
{{- if not .bootstrapServers }}
kafka.bootstrapServers is missing: name your brokers, for example kafka-1:9092,kafka-2:9092; this chart brings none
{{- end }}
{{- if and (lt (int .replication) 3) (not .allowFewReplicas) }}
kafka.replication is {{ .replication }}: a lost disk may be a lost log; set it to 3, or kafka.allowFewReplicas to true where that does not matter
{{- end }}
{{- if .sasl.mechanism }}
{{- if not .sasl.username }}
kafka.sasl.username is missing: the mechanism {{ .sasl.mechanism }} needs it
{{- end }}
{{- if not .sasl.existingSecret }}
kafka.sasl.existingSecret is missing: make a secret with the password (kubectl create secret generic threadlog-kafka --from-file=password=FILE) and name it
{{- end }}
{{- else if or .sasl.username .sasl.existingSecret }}
kafka.sasl.mechanism is missing, so the user and the secret would have no effect: set it, for example to SCRAM-SHA-512
{{- end }}
{{- if and .tls.caSecret (not .tls.enabled) }}
kafka.tls.caSecret has no effect without TLS: set kafka.tls.enabled to true
{{- end }}
{{- end }}
{{- end -}}

{{- define "threadlog.validate.stores" -}}
{{- with .Values -}}
{{- if and (not .redis.url) (not .redis.existingSecret) }}
redis.url is missing: set it, for example to redis://redis:6379/0, or name a secret that holds the address in redis.existingSecret; this chart brings no Redis
{{- end }}
{{- if and .redis.url .redis.existingSecret }}
redis.url and redis.existingSecret are both set: unset one of them
{{- end }}
{{- if contains "@" .redis.url }}
redis.url holds a user or a password, which would lie in a ConfigMap: put the address into a secret and name that in redis.existingSecret
{{- end }}
{{- if not .blobs.existingClaim }}
blobs.existingClaim is missing: name a PersistentVolumeClaim that all services can mount, ReadWriteMany unless all pods run on one node
{{- end }}
{{- if and .toolRunner.enabled (not .workspaces.existingClaim) }}
workspaces.existingClaim is missing: name a PersistentVolumeClaim for the workspaces of threads, which all tool-runners can mount
{{- end }}
{{- end }}
{{- end -}}

{{- define "threadlog.validate.gateway" -}}
{{- with .Values -}}
{{- if .gateway.enabled }}
{{- if and (not .gateway.keys.existingSecret) (not .gateway.keys.existingClaim) }}
gateway.keys is missing, so nobody could use the gateway: run THREADLOG_GATEWAY__KEYS_FILE=keys.json threadlog keys create --name NAME, then kubectl create secret generic threadlog-keys --from-file=keys.json, and set gateway.keys.existingSecret to threadlog-keys
{{- end }}
{{- if and .gateway.keys.existingSecret .gateway.keys.existingClaim }}
gateway.keys.existingSecret and gateway.keys.existingClaim are both set: unset one of them
{{- end }}
{{- if le (int .gateway.terminationGracePeriodSeconds) (add .gateway.preStopSleepSeconds 6 | int) }}
gateway.terminationGracePeriodSeconds is {{ .gateway.terminationGracePeriodSeconds }}: it must be over gateway.preStopSleepSeconds ({{ .gateway.preStopSleepSeconds }}) and 6 s in which requests end: set it to {{ add .gateway.preStopSleepSeconds 20 }}
{{- end }}
{{- if and .gateway.autoscaling.enabled (lt (int .gateway.autoscaling.maxReplicas) (int .gateway.autoscaling.minReplicas)) }}
gateway.autoscaling.maxReplicas is below minReplicas: raise it
{{- end }}
{{- else if .ingress.enabled }}
ingress.enabled needs the gateway: set gateway.enabled to true
{{- end }}
{{- end }}
{{- end -}}

{{- define "threadlog.validate.workers" -}}
{{- $values := .Values -}}
{{- $enabled := list -}}
{{- range $name, $service := (include "threadlog.services" . | fromYaml) -}}
{{- $own := get $values $service.key -}}
{{- if $own.enabled }}{{ $enabled = append $enabled $name }}{{ end -}}
{{- if and $own.enabled (ne $name "gateway") }}
{{- $most := min (int $values.kafka.partitions) (int ($service.most | default 1024)) }}
{{- if gt (int $own.replicas) (int $most) }}
{{ $service.key }}.replicas is {{ $own.replicas }}, and with kafka.partitions {{ $values.kafka.partitions }} only {{ $most }} of them could ever work: set it to {{ $most }} at most; the number of partitions cannot be changed
{{- end }}
{{- $grace := $own.terminationGracePeriodSeconds | default $values.pod.terminationGracePeriodSeconds }}
{{- if lt (int $grace) (add $values.drainTimeoutSeconds 15 | int) }}
{{ $service.key }} has a grace period of {{ $grace }} s and drains for up to drainTimeoutSeconds ({{ $values.drainTimeoutSeconds }}), so calls would be killed: set terminationGracePeriodSeconds, of pod or {{ $service.key }}, to {{ add $values.drainTimeoutSeconds 30 }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $enabled }}
no service is enabled: set gateway.enabled, planner.enabled or another one to true
{{- end }}
{{- with $values.models }}
{{- if and $values.planner.enabled (not .openai.existingSecret) (not .openai.baseUrl) (not .anthropic.existingSecret) (not .anthropic.baseUrl) }}
models has no provider, so no planner could ask one: set models.openai.existingSecret or models.anthropic.existingSecret to a secret with its key, or a baseUrl for a server of yours that needs none
{{- end }}
{{- end }}
{{- end -}}

{{- define "threadlog.validate.sandbox" -}}
{{- with .Values.toolRunner -}}
{{- if .enabled }}
{{- if and .sandbox.disabled (not .sandbox.allowDisabled) }}
toolRunner.sandbox.disabled runs commands of models without a sandbox, with all that the pod may reach: unset it, or set toolRunner.sandbox.allowDisabled to true as well
{{- end }}
{{- if and (not .sandbox.disabled) (not .sandbox.pod) }}
toolRunner.sandbox.pod is missing. The sandbox needs user namespaces, which the usual profiles of a container forbid: set it to userNamespaces, so that the tool-runner's pod and its test pod, and no other, ask for hostUsers: false, an unmasked /proc and no seccomp or AppArmor profile but those that you name; or to restricted where your nodes' own profiles allow them
{{- end }}
{{- if and .sandbox.disabled .sandbox.pod (ne .sandbox.pod "restricted") }}
toolRunner.sandbox.pod asks for user namespaces that nothing needs while toolRunner.sandbox.disabled is true: unset it
{{- end }}
{{- if and (ne .sandbox.pod "userNamespaces") (or .sandbox.seccompLocalhostProfile .sandbox.appArmorLocalhostProfile) }}
toolRunner.sandbox names a Localhost profile, which has an effect with toolRunner.sandbox.pod userNamespaces only: set that, or unset the profile
{{- end }}
{{- if and (eq .sandbox.pod "userNamespaces") (semverCompare "<1.33.0-0" $.Capabilities.KubeVersion.Version) }}
toolRunner.sandbox.pod userNamespaces needs Kubernetes 1.33, and this is {{ $.Capabilities.KubeVersion.Version }}: upgrade, or run the tool-runner elsewhere (toolRunner.enabled false)
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "threadlog.validate.network" -}}
{{- with .Values -}}
{{- if .ingress.enabled }}
{{- if not .ingress.hosts }}
ingress.hosts is missing: the gateway answers to names that it knows alone; name one, for example threadlog.example.com
{{- end }}
{{- if and (not .ingress.tlsSecret) (not .ingress.allowPlainHttp) }}
ingress.tlsSecret is missing: without TLS keys and contents can be read on the way; name a secret with the certificate, or set ingress.allowPlainHttp to true where TLS ends before it
{{- end }}
{{- end }}
{{- with .networkPolicy }}
{{- if and .egress.enabled (not .enabled) }}
networkPolicy.egress.enabled has no effect alone: set networkPolicy.enabled to true
{{- end }}
{{- if and .enabled .egress.enabled }}
{{- range $name := list "dns" "kafka" "redis" }}
{{- if not (get $.Values.networkPolicy.egress $name) }}
networkPolicy.egress.{{ $name }} is missing, so no pod could reach it: add an egress rule with its addresses or pods, and ports
{{- end }}
{{- end }}
{{- if and $.Values.planner.enabled (not .egress.models) }}
networkPolicy.egress.models is missing, so no planner could ask a model: add an egress rule with the addresses of the provider; a NetworkPolicy knows no host names
{{- end }}
{{- end }}
{{- if and .enabled $.Values.serviceMonitor.enabled (not .metricsFrom) }}
networkPolicy.metricsFrom is missing, so Prometheus could not scrape: name its pods or namespace as a peer
{{- end }}
{{- end }}
{{- if and (or .serviceMonitor.enabled .prometheusRule.enabled) (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
serviceMonitor and prometheusRule need the Prometheus operator, and this cluster does not know monitoring.coreos.com/v1: install it, or disable them; for helm template add --api-versions monitoring.coreos.com/v1
{{- end }}
{{- end }}
{{- end -}}
