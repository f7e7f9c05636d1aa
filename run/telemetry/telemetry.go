// Package telemetry exports the progress of runs as OpenTelemetry traces and metrics.
//
// It is off unless the usual OTEL_* variables name a collector. It sends ids of runs and tasks, verdicts
// and their reasons, phases, times, names of sandboxes and of the programs that sbench starts in them,
// and counts of connections and tokens. It sends no text of a task, a candidate or an agent.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

// closeTimeout is how long Close waits for a collector.
const closeTimeout = 5 * time.Second

// An Exporter sends the events that it is given. A nil Exporter sends nothing.
type Exporter struct {
	ctx     context.Context // with the trace that TRACEPARENT names
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	tracer  trace.Tracer

	tries, commands, decisions, tokens metric.Int64Counter
	durations                          metric.Float64Histogram

	mu   sync.Mutex
	open map[key]span
}

// A key names what a span is about: the run, an attempt, one of its phases, or a command in a sandbox.
type key struct {
	phase   string // run, attempt, producer, verifier or sandbox
	task    string
	attempt int
	sandbox string
}

type span struct {
	trace.Span
	ctx   context.Context // for spans below it
	begun time.Time
}

// New returns an exporter as the environment of this process configures it. It returns nil if
// OTEL_SDK_DISABLED is "true", or if the environment sets neither an endpoint
// (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, …) nor the exporter "otlp"
// (OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER). Values that it does not support are errors.
//
// The exporter passes failures to export to failed, possibly from other goroutines. The caller calls
// Close.
func New(ctx context.Context, version string, failed func(error)) (*Exporter, error) {
	sendTraces, err := enabled("TRACES")
	sendMetrics, also := enabled("METRICS")
	if err = cmp.Or(err, also); err != nil || !sendTraces && !sendMetrics {
		return nil, err
	}
	of, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "sbench"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(failed))
	spans := []sdktrace.TracerProviderOption{sdktrace.WithResource(of)}
	readers := []sdkmetric.Option{sdkmetric.WithResource(of)}
	if sendTraces {
		to, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, err
		}
		spans = append(spans, sdktrace.WithBatcher(to))
	}
	if sendMetrics {
		to, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, err
		}
		readers = append(readers, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(to)))
	}
	e := &Exporter{traces: sdktrace.NewTracerProvider(spans...), metrics: sdkmetric.NewMeterProvider(readers...), open: map[key]span{}}
	e.ctx = propagation.TraceContext{}.Extract(context.WithoutCancel(ctx), propagation.MapCarrier{"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE")})
	e.tracer = e.traces.Tracer("github.com/securebench/sbench")
	return e, e.instruments()
}

// enabled reports whether a signal is to be exported.
func enabled(signal string) (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	exporter := os.Getenv("OTEL_" + signal + "_EXPORTER")
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	switch {
	case exporter == "none" || exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_%s_EXPORTER is %q, and there are only otlp and none", signal, exporter)
	case protocol != "" && protocol != "http/protobuf":
		return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, and there is only http/protobuf (usually on port 4318)", protocol)
	}
	return true, nil
}

func (e *Exporter) instruments() error {
	meter := e.metrics.Meter("github.com/securebench/sbench")
	counter := func(name, unit, description string) (metric.Int64Counter, error) {
		return meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	}
	var errs [5]error
	e.tries, errs[0] = counter("sbench.tries", "{try}", "Recorded tries of attempts, by status and reason.")
	e.commands, errs[1] = counter("sbench.sandbox.commands", "{command}", "Commands in sandboxes, by decision.")
	e.decisions, errs[2] = counter("sbench.proxy.decisions", "{decision}", "Decisions of the egress proxy.")
	e.tokens, errs[3] = counter("sbench.tokens", "{token}", "Tokens that agents used, by type: input or output.")
	e.durations, errs[4] = meter.Float64Histogram("sbench.phase.duration", metric.WithUnit("s"),
		metric.WithDescription("Durations of tries (phase attempt), of their phases producer and verifier, and of commands in sandboxes (phase sandbox)."),
		metric.WithExplicitBucketBoundaries(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000))
	return errors.Join(errs[:]...)
}

// Add exports an event. Events must be added in their order; several goroutines may do so.
func (e *Exporter) Add(ev run.Event) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	of := func(phase string) key { return key{phase: phase, task: ev.Task, attempt: ev.Attempt} }
	command := of("sandbox")
	command.sandbox = ev.Sandbox
	status, reason := attribute.String("sbench.status", string(ev.Status)), attribute.String("sbench.reason", ev.Reason)
	switch ev.Kind {
	case run.RunStart:
		e.start(ev, key{phase: "run"}, attribute.Int("sbench.tasks", ev.Tasks), attribute.Int("sbench.attempts", ev.Attempts), attribute.Int("sbench.resumed", ev.Resumed))
	case run.TaskStart:
		e.start(ev, of("attempt"), attribute.Int("sbench.try", ev.Try))
	case run.ProducerStart:
		e.start(ev, of("producer"))
	case run.ProducerDone:
		e.end(ev, of("producer"), false, reason)
	case run.VerifierStart:
		e.start(ev, of("verifier"))
	case run.VerifierDone, run.VerifierPolicyDenied:
		e.end(ev, of("verifier"), ev.Kind == run.VerifierPolicyDenied, status, reason)
	case run.SandboxCommand:
		if ev.Task != "" { // a command in a sandbox that several attempts share is only counted
			e.start(ev, command, attribute.String("sbench.sandbox.command", strings.TrimPrefix(ev.Detail, ev.Sandbox+": ")))
		}
		decision := "allowed"
		if ev.Reason != "" {
			decision = "denied"
			e.end(ev, command, true, reason)
		}
		e.commands.Add(e.ctx, 1, metric.WithAttributes(attribute.String("decision", decision)))
	case run.SandboxResult:
		e.end(ev, command, false, attribute.String("sbench.sandbox.exit", strings.TrimPrefix(ev.Detail, ev.Sandbox+": ")))
	case run.Egress:
		e.network(ev, of("attempt"))
	case run.TaskDone:
		e.tries.Add(e.ctx, 1, metric.WithAttributes(attribute.String("status", string(ev.Status)), attribute.String("reason", ev.Reason)))
		e.end(ev, of("attempt"), ev.Status == record.Error, status, reason, attribute.Bool("sbench.again", ev.Again))
	case run.RunDone:
		e.end(ev, key{phase: "run"}, ev.Summary != nil && ev.Summary.Interrupted(), attribute.String("sbench.verification", ev.Detail))
	}
}

func (e *Exporter) network(ev run.Event, attempt key) {
	for name, count := range map[string]int64{"allowed": ev.Allowed, "denied": ev.Denied} {
		e.decisions.Add(e.ctx, count, metric.WithAttributes(attribute.String("decision", name)))
	}
	for name, count := range map[string]int64{"input": ev.Tokens - ev.OutputTokens, "output": ev.OutputTokens} {
		e.tokens.Add(e.ctx, count, metric.WithAttributes(attribute.String("type", name)))
	}
	if s, ok := e.open[attempt]; ok {
		s.SetAttributes(attribute.Int64("sbench.proxy.allowed", ev.Allowed), attribute.Int64("sbench.proxy.denied", ev.Denied),
			attribute.Int64("sbench.tokens", ev.Tokens), attribute.Int64("sbench.tokens.output", ev.OutputTokens))
	}
}

// start begins a span below the innermost open span that contains it.
func (e *Exporter) start(ev run.Event, k key, attributes ...attribute.KeyValue) {
	e.end(ev, k, false) // two commands at a time in one sandbox
	parent := e.ctx
	for _, above := range []key{
		{phase: "run"}, {"attempt", k.task, k.attempt, ""}, {"producer", k.task, k.attempt, ""}, {"verifier", k.task, k.attempt, ""},
	} {
		if s, ok := e.open[above]; ok && above != k {
			parent = s.ctx
		}
	}
	attributes = append(attributes, attribute.String("sbench.run_id", ev.RunID))
	if k.task != "" {
		attributes = append(attributes, attribute.String("sbench.task", k.task), attribute.Int("sbench.attempt", k.attempt))
	}
	if k.sandbox != "" {
		attributes = append(attributes, attribute.String("sbench.sandbox", k.sandbox))
	}
	ctx, s := e.tracer.Start(parent, k.phase, trace.WithTimestamp(ev.Time), trace.WithAttributes(attributes...))
	e.open[k] = span{s, ctx, ev.Time}
}

// end ends a span and the open spans below it: after a failure, these get no event of their own.
func (e *Exporter) end(ev run.Event, k key, failed bool, attributes ...attribute.KeyValue) {
	s, ok := e.open[k]
	if !ok {
		return
	}
	if k.phase == "run" || k.phase == "attempt" {
		for below := range e.open {
			if below != k && (k.phase == "run" || below.task == k.task && below.attempt == k.attempt) {
				e.end(ev, below, failed)
			}
		}
	}
	delete(e.open, k)
	s.SetAttributes(slices.DeleteFunc(attributes, func(a attribute.KeyValue) bool { return a.Value.String() == "" })...)
	if failed {
		s.SetStatus(codes.Error, ev.Reason)
	}
	s.End(trace.WithTimestamp(ev.Time))
	if k.phase != "run" {
		e.durations.Record(e.ctx, ev.Time.Sub(s.begun).Seconds(), metric.WithAttributes(attribute.String("phase", k.phase)))
	}
}

// Close ends the open spans, and exports what is left. It is an error if that takes longer than
// closeTimeout.
func (e *Exporter) Close() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(run.Event{Time: time.Now()}, key{phase: "run"}, true) // open only if the run was interrupted
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return errors.Join(e.traces.Shutdown(ctx), e.metrics.Shutdown(ctx))
}
