{{- /* Security of a pod: {root, pod, isSandbox}. Restricted, but for the sandbox where it was asked. */ -}}
{{- define "threadlog.podSecurity" -}}
{{- $sandbox := .root.Values.toolRunner.sandbox -}}
{{- $needs := and .isSandbox (eq $sandbox.pod "userNamespaces") -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if $needs }}
# A root of this pod would be nobody on the node; the API server wants it for an unmasked /proc.
hostUsers: false
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .pod.runAsUser | int64 }}
  runAsGroup: {{ .pod.runAsUser | int64 }}
  fsGroup: {{ .pod.fsGroup | int64 }}
  # The keys file in a claim must stay closed to its group, so nothing is changed twice.
  fsGroupChangePolicy: OnRootMismatch
  {{- if $needs }}
  {{- include "threadlog.profile" (dict "kind" "seccompProfile" "path" $sandbox.seccompLocalhostProfile) | nindent 2 }}
  {{- include "threadlog.profile" (dict "kind" "appArmorProfile" "path" $sandbox.appArmorLocalhostProfile) | nindent 2 }}
  {{- else }}
  seccompProfile: {type: RuntimeDefault}
  {{- end }}
{{- end -}}

{{- define "threadlog.profile" -}}
{{ .kind }}:
{{- if .path }}
  type: Localhost
  localhostProfile: {{ .path }}
{{- else }}
  type: Unconfined
{{- end }}
{{- end -}}

{{- define "threadlog.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  {{- if and .isSandbox (eq .root.Values.toolRunner.sandbox.pod "userNamespaces") }}
  # The sandbox mounts a /proc of its own, which the kernel refuses below a masked one.
  procMount: Unmasked
  {{- end }}
{{- end -}}

{{- /* What lies in every pod: {root, has}. `has`: keys, workspaces, prices. */ -}}
{{- define "threadlog.volumes" -}}
{{- $values := .root.Values -}}
{{- $room := .has.workspaces | default false | ternary $values.toolRunner.temporarySizeLimit "256Mi" -}}
- {name: tmp, emptyDir: {sizeLimit: {{ $room }}}}
- {name: data, emptyDir: {sizeLimit: {{ $room }}}}
- {name: blobs, persistentVolumeClaim: {claimName: {{ $values.blobs.existingClaim | quote }}}}
{{- if .has.workspaces }}
- {name: workspaces, persistentVolumeClaim: {claimName: {{ $values.workspaces.existingClaim | quote }}}}
{{- end }}
{{- if $values.kafka.sasl.mechanism }}
{{ include "threadlog.secretVolume" (list "kafka" $values.kafka.sasl.existingSecret $values.kafka.sasl.passwordKey "password") }}
{{- end }}
{{- if and $values.kafka.tls.enabled $values.kafka.tls.caSecret }}
{{ include "threadlog.secretVolume" (list "kafka-ca" $values.kafka.tls.caSecret $values.kafka.tls.caKey "ca.crt") }}
{{- end }}
{{- if $values.redis.existingSecret }}
{{ include "threadlog.secretVolume" (list "redis" $values.redis.existingSecret $values.redis.urlKey "url") }}
{{- end }}
{{- if .has.keys }}
{{- with $values.gateway.keys }}
{{- if .existingSecret }}
{{ include "threadlog.secretVolume" (list "keys" .existingSecret .file .file) }}
{{- else }}
- {name: keys, persistentVolumeClaim: {claimName: {{ .existingClaim | quote }}}}
{{- end }}
{{- end }}
{{- end }}
{{- if and .has.prices $values.models.prices }}
- {name: prices, configMap: {name: {{ include "threadlog.fullname" .root }}-prices}}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "threadlog.secretVolume" -}}
- name: {{ index . 0 }}
  secret:
    secretName: {{ index . 1 | quote }}
    # Of root, and readable by the group of the pod: what the keys file must be.
    defaultMode: 0440
    items: [{key: {{ index . 2 | quote }}, path: {{ index . 3 | quote }}}]
{{- end -}}

{{- define "threadlog.mounts" -}}
{{- $values := .root.Values -}}
- {name: tmp, mountPath: /tmp}
- {name: data, mountPath: /var/lib/threadlog/data}
- {name: blobs, mountPath: /var/lib/threadlog/blobs}
{{- if .has.workspaces }}
- {name: workspaces, mountPath: /var/lib/threadlog/workspaces}
{{- end }}
{{- if $values.kafka.sasl.mechanism }}
- {name: kafka, mountPath: /etc/threadlog/kafka, readOnly: true}
{{- end }}
{{- if and $values.kafka.tls.enabled $values.kafka.tls.caSecret }}
- {name: kafka-ca, mountPath: /etc/threadlog/kafka-ca, readOnly: true}
{{- end }}
{{- if $values.redis.existingSecret }}
- {name: redis, mountPath: /etc/threadlog/redis, readOnly: true}
{{- end }}
{{- if .has.keys }}
{{- if $values.gateway.keys.existingSecret }}
- {name: keys, mountPath: /etc/threadlog/keys, readOnly: true}
{{- else }}
- {name: keys, mountPath: /var/lib/threadlog/keys}
{{- end }}
{{- end }}
{{- if and .has.prices $values.models.prices }}
- {name: prices, mountPath: /etc/threadlog/prices, readOnly: true}
{{- end }}
{{- with $values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Where a pod may run: {root, pod, component}. */ -}}
{{- define "threadlog.placing" -}}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.nodeSelector }}
nodeSelector:{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations:{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity:{{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "threadlog.spread" -}}
{{- $selector := include "threadlog.selector" . -}}
topologySpreadConstraints:
{{- if .pod.topologySpreadConstraints }}
  {{- toYaml .pod.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    # Each version by itself: the pods that go do not count.
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:{{- $selector | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}
