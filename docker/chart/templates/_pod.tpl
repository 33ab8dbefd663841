{{- define "fencepost.pod" -}}
{{- include "fencepost.check" . -}}
metadata:
  labels: {{- include "fencepost.labels" . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  # The broker asks nothing of Kubernetes.
  automountServiceAccountToken: false
  # Variables such as FENCEPOST_PORT for each Service of the namespace look like settings.
  enableServiceLinks: false
  securityContext: {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- if .Values.cluster.enabled }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: {{ .Values.cluster.spreadOver | quote }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "fencepost.selector" . | nindent 10 }}
  {{- end }}
  containers:
    - name: broker
      image: {{ printf "%s%s%s" .Values.image.repository (.Values.image.tag | default "" | hasPrefix "sha256:" | ternary "@" ":") (.Values.image.tag | default .Chart.AppVersion) | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - serve
        # A folder of the volume: file systems have a lost+found at their root.
        - --data-dir
        - /data/broker
        {{- range $name, $value := .Values.settings }}
        - --set
        {{- /* A number of YAML is a float for Helm: 1e+09 is no setting. */}}
        - {{ printf "%s=%s" $name (kindIs "float64" $value | ternary (toJson $value) (toString $value)) | include "fencepost.verbatim" }}
        {{- end }}
      env: {{- include "fencepost.env" . | nindent 8 }}
      ports:
        - {name: kafka, containerPort: {{ .Values.listener.port }}}
        {{- if .Values.external.enabled }}
        - {name: outside, containerPort: {{ .Values.external.port }}}
        {{- end }}
        {{- if .Values.metrics.enabled }}
        - {name: http, containerPort: {{ .Values.metrics.port }}}
        {{- end }}
      startupProbe: {{- include "fencepost.probe" (dict "root" . "path" "/readyz" "times" .Values.probes.startup) | nindent 8 }}
      readinessProbe: {{- include "fencepost.probe" (dict "root" . "path" "/readyz" "times" .Values.probes.readiness) | nindent 8 }}
      livenessProbe: {{- include "fencepost.probe" (dict "root" . "path" "/livez" "times" .Values.probes.liveness) | nindent 8 }}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      securityContext: {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: temporary, mountPath: /tmp}
        {{- if .Values.metrics.enabled }}
        - {name: tokens, mountPath: /secrets, readOnly: true}
        {{- end }}
        {{- if .Values.tls.secret }}
        - {name: certificates, mountPath: /certificates, readOnly: true}
        {{- end }}
        {{- if .Values.sasl.secret }}
        - {name: users, mountPath: /users, readOnly: true}
        {{- end }}
  volumes:
    - {name: temporary, emptyDir: {sizeLimit: 64Mi}}
    {{- if .Values.cluster.enabled }}
    - {name: data, emptyDir: {sizeLimit: {{ .Values.cluster.scratchSize }}}}
    {{- end }}
    {{- if .Values.metrics.enabled }}
    - name: tokens
      secret: {secretName: {{ .Values.metrics.secret | quote }}, defaultMode: 0440, items: [{key: tokens, path: tokens}]}
    {{- end }}
    {{- with .Values.tls }}
    {{- if .secret }}
    - name: certificates
      secret: {secretName: {{ .secret | quote }}, defaultMode: 0440, items: [{key: {{ .key | quote }}, path: broker.pem}]}
    {{- end }}
    {{- end }}
    {{- if .Values.sasl.secret }}
    - name: users
      secret: {secretName: {{ .Values.sasl.secret | quote }}, defaultMode: 0440, items: [{key: users, path: users}]}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "fencepost.env" -}}
{{- $protocol := include "fencepost.protocol" . -}}
{{- $name := include "fencepost.name" . -}}
- {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: FENCEPOST_LISTENERS, value: "INSIDE://0.0.0.0:{{ .Values.listener.port }}{{ if .Values.external.enabled }},OUTSIDE://0.0.0.0:{{ .Values.external.port }}{{ end }}"}
- {name: FENCEPOST_LISTENER_SECURITY_PROTOCOL_MAP, value: "INSIDE:{{ $protocol }},OUTSIDE:{{ $protocol }}"}
- {name: FENCEPOST_ADVERTISED_LISTENERS, value: {{ include "fencepost.advertised" . | quote }}}
- {name: FENCEPOST_LOG_FORMAT, value: json}
{{- if .Values.metrics.enabled }}
- {name: FENCEPOST_HTTP_LISTENER, value: "0.0.0.0:{{ .Values.metrics.port }}"}
- {name: FENCEPOST_HTTP_TOKEN_FILE, value: /secrets/tokens}
- {name: FENCEPOST_HTTP_HOST_NAMES, value: "{{ $name }},{{ $name }}.$(NAMESPACE),{{ $name }}.$(NAMESPACE).svc"}
{{- end }}
{{- if .Values.tls.secret }}
- {name: FENCEPOST_SSL_KEYSTORE_LOCATION, value: /certificates/broker.pem}
{{- end }}
{{- if .Values.sasl.secret }}
- {name: FENCEPOST_SASL_ENABLED_MECHANISMS, value: PLAIN}
- {name: FENCEPOST_PLAIN_USERS_FILE, value: /users/users}
- {name: FENCEPOST_AUTHORIZER_CLASS_NAME, value: org.apache.kafka.metadata.authorizer.StandardAuthorizer}
- {name: FENCEPOST_SUPER_USERS, value: {{ printf "User:%s" (join ";User:" .Values.sasl.superUsers) | include "fencepost.verbatim" }}}
{{- end }}
{{- if .Values.cluster.enabled }}
- {name: FENCEPOST_INTER_BROKER_LISTENER_NAME, value: INSIDE}
- {name: FENCEPOST_CLUSTER_URL, valueFrom: {secretKeyRef: {name: {{ .Values.cluster.secret | quote }}, key: database}}}
- {name: FENCEPOST_CLUSTER_OBJECTS, valueFrom: {secretKeyRef: {name: {{ .Values.cluster.secret | quote }}, key: objects}}}
- {name: AWS_ACCESS_KEY_ID, valueFrom: {secretKeyRef: {name: {{ .Values.cluster.secret | quote }}, key: access-key-id, optional: true}}}
- {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ .Values.cluster.secret | quote }}, key: secret-access-key, optional: true}}}
{{- if .Values.cluster.rackFromZone }}
- {name: FENCEPOST_BROKER_RACK, valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}}
{{- else if .Values.cluster.rack }}
- {name: FENCEPOST_BROKER_RACK, value: {{ include "fencepost.verbatim" .Values.cluster.rack }}}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
