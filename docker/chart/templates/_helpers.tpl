{{/* A release's name begins with the chart's, or ends with it: no two of them make one name. */}}
{{- define "fencepost.name" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if hasPrefix .Chart.Name .Release.Name -}}
{{ include "fencepost.short" (dict "name" .Release.Name "limit" 52) }}
{{- else -}}
{{ include "fencepost.short" (dict "name" .Release.Name "limit" 42) }}-{{ .Chart.Name }}
{{- end -}}
{{- end -}}

{{- define "fencepost.short" -}}
{{- if le (len .name) (int .limit) -}}
{{ .name }}
{{- else -}}
{{ .name | trunc (int (sub .limit 9)) | trimSuffix "-" }}-{{ .name | sha256sum | trunc 8 }}
{{- end -}}
{{- end -}}

{{/* Kubernetes replaces $(NAME) in arguments and values, unless the dollar is doubled. */}}
{{- define "fencepost.verbatim" -}}
{{ . | replace "$" "$$" | quote }}
{{- end -}}

{{- define "fencepost.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "fencepost.labels" -}}
{{ include "fencepost.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | replace ":" "-" | regexFind "^[A-Za-z0-9_.-]+" | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "fencepost.protocol" -}}
{{- if .Values.sasl.secret }}SASL_SSL{{ else if .Values.tls.secret }}SSL{{ else }}PLAINTEXT{{ end -}}
{{- end -}}

{{/* Where clients connect: the address of each pod of a cluster, as they have to reach a partition's leader. */}}
{{- define "fencepost.advertised" -}}
{{- $inside := printf "INSIDE://%s:%v" (.Values.listener.advertisedHost | default (.Values.cluster.enabled | ternary "$(POD_IP)" (printf "%s.$(NAMESPACE).svc" (include "fencepost.name" .)))) .Values.listener.port -}}
{{- if .Values.external.enabled -}}
{{- $port := .Values.external.advertisedPort | default (and (eq .Values.external.type "NodePort") .Values.external.nodePort | default .Values.external.port) -}}
{{ $inside }},OUTSIDE://{{ .Values.external.advertisedHost }}:{{ $port }}
{{- else -}}
{{ $inside }}
{{- end -}}
{{- end -}}

{{- define "fencepost.probe" -}}
{{- if .root.Values.metrics.enabled -}}
httpGet: {path: {{ .path }}, port: http}
{{- else -}}
tcpSocket: {port: kafka}
{{- end }}
{{ toYaml .times }}
{{- end -}}

{{/* Refusals of two values together, for which a schema has no words. */}}
{{- define "fencepost.check" -}}
{{- $name := include "fencepost.name" . -}}
{{- if or (not (regexMatch "^[a-z][a-z0-9-]*$" $name)) (hasSuffix "-outside" $name) -}}
{{- fail (printf "a Service cannot be named %s: set fullnameOverride to a name of letters, digits and hyphens that begins with a letter and does not end with -outside" $name) -}}
{{- end -}}
{{- $ports := list .Values.listener.port -}}
{{- if .Values.metrics.enabled }}{{ $ports = append $ports .Values.metrics.port }}{{ end -}}
{{- if .Values.external.enabled }}{{ $ports = append $ports .Values.external.port }}{{ end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail "listener.port, metrics.port and external.port: one port cannot have two listeners" -}}
{{- end -}}
{{- if and .Values.metrics.enabled (not .Values.metrics.secret) -}}
{{- fail "metrics.secret is not set: name a Secret with the key tokens, or set metrics.enabled=false" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.enabled" -}}
{{- end -}}
{{- if and .Values.sasl.secret (not .Values.tls.secret) -}}
{{- fail "sasl.secret needs tls.secret: PLAIN sends the password itself" -}}
{{- end -}}
{{- if and .Values.external.enabled (not .Values.external.advertisedHost) -}}
{{- fail "external.advertisedHost is not set: name the host that clients outside the cluster connect to" -}}
{{- end -}}
{{- if .Values.cluster.enabled -}}
{{- if not .Values.cluster.secret -}}
{{- fail "cluster.secret is not set: name a Secret with the keys database and objects" -}}
{{- end -}}
{{- if or .Values.tls.secret .Values.sasl.secret .Values.external.enabled -}}
{{- fail "tls, sasl and external are for one broker: this chart has none of them for a cluster" -}}
{{- end -}}
{{- if and .Values.listener.advertisedHost (gt (int .Values.cluster.replicas) 1) -}}
{{- fail "listener.advertisedHost is for one broker: clients of a cluster have to reach each pod" -}}
{{- end -}}
{{- if and .Values.cluster.rack .Values.cluster.rackFromZone -}}
{{- fail "cluster.rack and cluster.rackFromZone: set one of them" -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}
{{- if has $name (list "listeners" "advertised.listeners" "fencepost.http.listener" "log.dirs" "log.dir") -}}
{{- fail (printf "settings: %s is set by the chart: use listener, external, metrics or storage" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
