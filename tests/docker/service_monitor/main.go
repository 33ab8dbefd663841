// Reads a ServiceMonitor from standard input as Prometheus' operator does, and refuses fields that it does not know.
package main

import (
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	var monitor monitoring.ServiceMonitor
	if err == nil {
		err = yaml.UnmarshalStrict(text, &monitor)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
