package export

import (
	"fmt"
	"strings"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/report"
)

// trajectory is a trajectory in Harbor's Agent Trajectory Interchange Format, version 1.7.
type trajectory struct {
	Schema       string         `json:"schema_version"`
	SessionID    string         `json:"session_id"`
	Agent        agent          `json:"agent"`
	Steps        []step         `json:"steps"`
	FinalMetrics *finalMetrics  `json:"final_metrics,omitempty"`
	Extra        map[string]any `json:"extra,omitempty"`
}

type agent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Model   string `json:"model_name,omitempty"`
}

type step struct {
	ID          int          `json:"step_id"` // from 1
	Source      string       `json:"source"`
	Message     string       `json:"message"`
	Reasoning   string       `json:"reasoning_content,omitempty"`
	Calls       []call       `json:"tool_calls,omitempty"`
	Observation *observation `json:"observation,omitempty"`
}

type call struct {
	ID        string         `json:"tool_call_id"`
	Function  string         `json:"function_name"`
	Arguments map[string]any `json:"arguments"`
}

type observation struct {
	Results []result `json:"results"`
}

type result struct {
	Call    string `json:"source_call_id,omitempty"` // of the same step
	Content string `json:"content"`
}

type finalMetrics struct {
	Prompt     int64   `json:"total_prompt_tokens"` // cached ones included
	Completion int64   `json:"total_completion_tokens"`
	Cached     int64   `json:"total_cached_tokens"`
	CostUSD    float64 `json:"total_cost_usd"`
	Steps      int     `json:"total_steps"`
}

// The sources of steps.
const (
	fromSystem = "system"
	fromUser   = "user"
	fromAgent  = "agent"
)

// trajectoryOf returns what an agent said and did, as far as its output shows it.
func trajectoryOf(session string, a report.Attempt, d report.Detail, by agent) trajectory {
	t := trajectory{Schema: "ATIF-v1.7", SessionID: session, Agent: by}
	add := func(s step) {
		s.ID = len(t.Steps) + 1
		t.Steps = append(t.Steps, s)
	}
	prompt := whole(d.Prompt)
	for _, v := range d.Public {
		prompt += fmt.Sprintf("%s:\n%s\n", v.Name, whole(v.Text))
	}
	add(step{Source: fromUser, Message: prompt})
	if d.Trace != nil {
		for _, s := range d.Trace.Steps {
			add(stepOf(s, len(t.Steps)+1))
		}
		if d.Trace.Cut > 0 {
			t.Extra = map[string]any{"steps_left_out": d.Trace.Cut}
		}
	}
	if a.Tokens != nil {
		t.FinalMetrics = &finalMetrics{a.Tokens.Input, a.Tokens.Output, a.Tokens.Cached, a.Cost, len(t.Steps)}
	}
	return t
}

func stepOf(s *report.Step, id int) step {
	text := whole(s.Text)
	switch s.Kind {
	case harness.StepMessage:
		return step{Source: fromAgent, Message: text}
	case harness.StepThinking:
		return step{Source: fromAgent, Reasoning: text}
	case harness.StepCommand:
		return called(s, id, "bash", map[string]any{"command": text})
	case harness.StepTool:
		return called(s, id, s.Title, map[string]any{"input": text})
	case harness.StepFiles:
		return called(s, id, "edit", map[string]any{"changes": strings.TrimSpace(s.Title + "\n" + text)})
	}
	return step{Source: fromSystem, Message: strings.TrimSpace(s.Title + "\n" + text)} // a note, an error, or no event
}

func called(s *report.Step, id int, function string, arguments map[string]any) step {
	if function == "" {
		function = "tool"
	}
	c := call{fmt.Sprintf("call_%d", id), function, arguments}
	made := step{Source: fromAgent, Calls: []call{c}}
	if s.Output == nil && s.Exit == 0 && !s.Failed {
		return made
	}
	content := ""
	if s.Output != nil {
		content = whole(*s.Output)
	}
	if s.Exit != 0 {
		content += fmt.Sprintf("\nexit status %d", s.Exit)
	} else if s.Failed {
		content += "\nfailed"
	}
	made.Observation = &observation{[]result{{c.ID, strings.TrimPrefix(content, "\n")}}}
	return made
}

// whole returns a text with a note of what was cut.
func whole(t report.Text) string {
	if t.Cut == 0 {
		return t.Head
	}
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", t.Head, t.Cut, t.Tail)
}
