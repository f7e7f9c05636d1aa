package telemetry_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/telemetry"
)

// collector receives what is exported: spans as "parent/name key=value…", and sums as
// "name key=value… = sum".
type collector struct {
	mu      sync.Mutex
	spans   []string
	traceID string
	sums    map[string]float64
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.URL.Path {
	case "/v1/traces":
		var m collectortrace.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		names := map[string]string{"": ""}
		for _, of := range m.ResourceSpans {
			c.spans = append(c.spans, "resource "+attributes(of.Resource.Attributes, "service."))
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					names[string(s.SpanId)] = s.Name
				}
				for _, s := range scope.Spans {
					parent, ok := names[string(s.ParentSpanId)]
					if !ok {
						parent = fmt.Sprintf("%x", s.ParentSpanId)
					}
					c.traceID = fmt.Sprintf("%x", s.TraceId)
					c.spans = append(c.spans, strings.TrimSpace(fmt.Sprintf("%s/%s %s %ds %s", parent, s.Name, s.Status.GetCode(), (s.EndTimeUnixNano-s.StartTimeUnixNano)/1e9, attributes(s.Attributes, "sbench."))))
				}
			}
		}
	case "/v1/metrics":
		var m collectormetrics.ExportMetricsServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		c.sums = map[string]float64{}
		for _, of := range m.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				for _, metric := range scope.Metrics {
					for _, p := range metric.GetSum().GetDataPoints() {
						c.sums[metric.Name+" "+attributes(p.Attributes, "")] = float64(p.GetAsInt())
					}
					for _, p := range metric.GetHistogram().GetDataPoints() {
						c.sums[metric.Name+" "+attributes(p.Attributes, "")] = p.GetSum()
					}
				}
			}
		}
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// attributes lists the attributes with keys that begin with prefix.
func attributes(list []*common.KeyValue, prefix string) string {
	var all []string
	for _, kv := range list {
		if key, ok := strings.CutPrefix(kv.Key, prefix); ok {
			var value any = kv.Value.GetStringValue()
			switch kv.Value.Value.(type) {
			case *common.AnyValue_IntValue:
				value = kv.Value.GetIntValue()
			case *common.AnyValue_BoolValue:
				value = kv.Value.GetBoolValue()
			}
			all = append(all, fmt.Sprintf("%s=%v", key, value))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// events of a run with two attempts: the first fails, the second cannot be measured, and there is no
// event for the end of its producer and of its sandbox.
func events() []run.Event {
	begun := time.Unix(1_700_000_000, 0)
	after := func(seconds int, e run.Event) run.Event {
		e.Time, e.RunID = begun.Add(time.Duration(seconds)*time.Second), "r"
		return e
	}
	return []run.Event{
		after(0, run.Event{Kind: run.RunStart, Tasks: 2, Attempts: 2}),
		after(1, run.Event{Kind: run.TaskStart, Task: "a", Attempt: 1, Try: 1}),
		after(1, run.Event{Kind: run.ProducerStart, Task: "a", Attempt: 1}),
		after(2, run.Event{Kind: run.SandboxCommand, Task: "a", Attempt: 1, Sandbox: "harness-1", Detail: "harness-1: python3"}),
		after(4, run.Event{Kind: run.TaskStart, Task: "b", Attempt: 1, Try: 1}),
		after(4, run.Event{Kind: run.ProducerStart, Task: "b", Attempt: 1}),
		after(5, run.Event{Kind: run.SandboxResult, Task: "a", Attempt: 1, Sandbox: "harness-1", Detail: "harness-1: exit status 0"}),
		after(5, run.Event{Kind: run.AgentOutput, Task: "a", Attempt: 1, Detail: "my text"}),
		after(6, run.Event{Kind: run.Egress, Task: "a", Attempt: 1, Allowed: 3, Denied: 2, Tokens: 150, OutputTokens: 50}),
		after(6, run.Event{Kind: run.ProducerDone, Task: "a", Attempt: 1}),
		after(6, run.Event{Kind: run.VerifierStart, Task: "a", Attempt: 1}),
		after(7, run.Event{Kind: run.SandboxCommand, Task: "a", Attempt: 1, Sandbox: "verifier-1", Detail: "verifier-1: mount", Reason: "denied_command"}),
		after(9, run.Event{Kind: run.VerifierDone, Task: "a", Attempt: 1, Status: record.Failed, Reason: "tests_failed"}),
		after(10, run.Event{Kind: run.TaskDone, Task: "a", Attempt: 1, Try: 1, Status: record.Failed, Reason: "tests_failed", FailureMessage: "my text"}),
		after(11, run.Event{Kind: run.SandboxCommand, Task: "b", Attempt: 1, Sandbox: "harness-2", Detail: "harness-2: sh"}),
		after(14, run.Event{Kind: run.TaskDone, Task: "b", Attempt: 1, Try: 1, Status: record.Error, Reason: "infrastructure"}),
		after(15, run.Event{Kind: run.SandboxCommand, Sandbox: "verifier", Detail: "verifier: python3"}),
		after(20, run.Event{Kind: run.RunDone, Detail: "partial"}),
	}
}

func TestExport(t *testing.T) {
	c := &collector{}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_SERVICE_NAME", "nightly")
	t.Setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	e, err := telemetry.New(t.Context(), "1.2", func(err error) { t.Error(err) })
	if err != nil || e == nil {
		t.Fatal(e, err)
	}
	for _, ev := range events() {
		e.Add(ev)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"attempt/producer STATUS_CODE_UNSET 5s attempt=1 run_id=r task=a",
		"attempt/verifier STATUS_CODE_UNSET 3s attempt=1 reason=tests_failed run_id=r status=failed task=a",
		"attempt/producer STATUS_CODE_ERROR 10s attempt=1 run_id=r task=b",
		"b7ad6b7169203331/run STATUS_CODE_UNSET 20s attempts=2 resumed=0 run_id=r tasks=2 verification=partial",
		"producer/sandbox STATUS_CODE_UNSET 3s attempt=1 run_id=r sandbox.command=python3 sandbox.exit=exit status 0 sandbox=harness-1 task=a",
		"producer/sandbox STATUS_CODE_ERROR 3s attempt=1 run_id=r sandbox.command=sh sandbox=harness-2 task=b",
		"resource name=nightly version=1.2",
		"run/attempt STATUS_CODE_ERROR 10s again=false attempt=1 reason=infrastructure run_id=r status=error task=b try=1",
		"run/attempt STATUS_CODE_UNSET 9s again=false attempt=1 proxy.allowed=3 proxy.denied=2 reason=tests_failed run_id=r status=failed task=a tokens.output=50 tokens=150 try=1",
		"verifier/sandbox STATUS_CODE_ERROR 0s attempt=1 reason=denied_command run_id=r sandbox.command=mount sandbox=verifier-1 task=a",
	}
	slices.Sort(want)
	slices.Sort(c.spans)
	if diff := cmp.Diff(want, c.spans); diff != "" {
		t.Error(diff)
	}
	if c.traceID != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the trace is %s, not TRACEPARENT's", c.traceID)
	}
	sums := []string{
		"sbench.phase.duration phase=attempt = 19", "sbench.phase.duration phase=producer = 15", "sbench.phase.duration phase=sandbox = 6", "sbench.phase.duration phase=verifier = 3",
		"sbench.proxy.decisions decision=allowed = 3", "sbench.proxy.decisions decision=denied = 2",
		"sbench.sandbox.commands decision=allowed = 3", "sbench.sandbox.commands decision=denied = 1",
		"sbench.tokens type=input = 100", "sbench.tokens type=output = 50",
		"sbench.tries reason=infrastructure status=error = 1", "sbench.tries reason=tests_failed status=failed = 1",
	}
	var got []string
	for name, sum := range maps.All(c.sums) {
		got = append(got, fmt.Sprint(name, " = ", sum))
	}
	slices.Sort(got)
	if diff := cmp.Diff(sums, got); diff != "" {
		t.Error(diff)
	}
}

// TestInterrupted: if there is no event for a run's end, the span of the run ends with the exporter, as
// an error.
func TestInterrupted(t *testing.T) {
	c := &collector{}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/v1/traces")
	e, err := telemetry.New(t.Context(), "1", func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events()[:4] {
		e.Add(ev)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 5 || !slices.ContainsFunc(c.spans, func(s string) bool { return strings.HasPrefix(s, "/run STATUS_CODE_ERROR") }) {
		t.Errorf("%q", c.spans)
	}
	if c.sums != nil {
		t.Error("metrics were exported, for which there is no endpoint")
	}
}

func TestOff(t *testing.T) {
	for name, tt := range map[string]struct {
		env  []string
		want string // part of the error
	}{
		"nothing set":    {nil, ""},
		"disabled":       {[]string{"OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:1"}, ""},
		"none":           {[]string{"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:1"}, ""},
		"other exporter": {[]string{"OTEL_TRACES_EXPORTER=zipkin"}, `OTEL_TRACES_EXPORTER is "zipkin", and there are only otlp and none`},
		"other protocol": {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kv := range tt.env {
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			e, err := telemetry.New(t.Context(), "1", func(err error) { t.Error(err) })
			if e != nil || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v", e, err)
			}
			e.Add(run.Event{Kind: run.RunStart})
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDeadCollector: Close stops waiting after some seconds, and its error says what was lost.
func TestDeadCollector(t *testing.T) {
	never := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-never }))
	defer server.Close()
	defer close(never)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	e, err := telemetry.New(t.Context(), "1", func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events() {
		e.Add(ev)
	}
	begun := time.Now()
	if err := e.Close(); err == nil || time.Since(begun) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
}
