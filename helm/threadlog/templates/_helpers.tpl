{{- /* Names and labels. */ -}}
{{- define "threadlog.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "threadlog.selector" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default .root.Chart.Name | trunc 63 }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "threadlog.labels" -}}
{{ include "threadlog.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "threadlog.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- .Values.image.digest | empty | ternary (printf "%s:%s" .Values.image.repository $tag) (printf "%s@%s" .Values.image.repository .Values.image.digest) -}}
{{- end -}}

{{- define "threadlog.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "threadlog.fullname" .) "default") -}}
{{- end -}}

{{- /* The services: where the values of each are, where it serves metrics and health, and, where its
     topic has fewer partitions than the events have, how many can work at most (USAGE_PARTITIONS_MAX). */ -}}
{{- define "threadlog.services" -}}
gateway: {key: gateway, port: 9101}
planner: {key: planner, port: 9102}
tool-runner: {key: toolRunner, port: 9103}
projection: {key: projection, port: 9104}
metering: {key: metering, port: 9105, most: 8}
{{- end -}}

{{- /* Whether an autoscaler owns the number of replicas: of {own}. */ -}}
{{- define "threadlog.isScaled" -}}
{{- if and (hasKey .own "autoscaling") .own.autoscaling.enabled }}yes{{ end -}}
{{- end -}}
