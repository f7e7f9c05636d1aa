package relay

import (
	"encoding/json"
	"net/http"
	"strings"
)

// googleRules are the rules for the fields of generateContent and its token counting. As in the JSON of
// protocol buffers, names are in camel case, or as in the API's definition.
func googleRules() map[string]rule {
	return passing(both(map[string]rule{
		"contents":          eachOf(googleContent),
		"systemInstruction": googleContent,
		"tools":             toolsRule(orNothing(googleDeclarations)),
		"toolConfig":        orNothing(googleConfig),
		"generationConfig":  googleGeneration,
		"cachedContent":     stateless("cachedContent"),
		"model":             googleModel,
	}), "safetySettings", "safety_settings")
}

// googleCountRules are the rules for countTokens, which may have a whole request in a field.
func googleCountRules() map[string]rule {
	return both(map[string]rule{"contents": eachOf(googleContent), "generateContentRequest": members(googleRules()), "model": googleModel})
}

// googleModel refuses a model other than the path's.
func googleModel(in *inspector, v *value) error {
	if s, _ := v.text(); s != "models/"+in.model && !v.null() {
		return refuse(badModel, "only the model "+in.model+" is allowed here")
	}
	return nil
}

// both adds the name of each field in the API's definition.
func both(rules map[string]rule) map[string]rule {
	all := map[string]rule{}
	for name, r := range rules {
		all[name], all[snake(name)] = r, r
	}
	return all
}

// snake turns a name from camel case into snake case.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// members is the rule for an object with fields of the API.
func members(rules map[string]rule) rule {
	return func(in *inspector, v *value) error {
		if v.null() {
			return nil
		}
		return in.members(v, rules)
	}
}

// orNothing is members for an object that is removed if no member may stay.
func orNothing(rules map[string]rule) rule {
	return func(in *inspector, v *value) error {
		err := members(rules)(in, v)
		if v.emptied() {
			v.remove()
		}
		return err
	}
}

var (
	// A tool is a list of functions, which run on the agent's side, or a provider's tool (Google Search,
	// code execution, URL contexts, maps, files).
	googleDeclarations = passing(map[string]rule{}, "functionDeclarations", "function_declarations")
	googleConfig       = passing(map[string]rule{}, "functionCallingConfig", "function_calling_config", "includeServerSideToolInvocations", "include_server_side_tool_invocations")
	googleParts        = passing(both(map[string]rule{"functionResponse": members(googleResponse)}),
		"text", "thought", "thoughtSignature", "thought_signature", "inlineData", "inline_data", "functionCall", "function_call",
		"videoMetadata", "video_metadata", "mediaResolution", "media_resolution")
	// A result may have media, which must be in the request itself.
	googleResponse = passing(map[string]rule{"parts": eachOf(members(passing(map[string]rule{}, "inlineData", "inline_data")))},
		"id", "name", "response", "willContinue", "will_continue", "scheduling")
)

// eachOf is the rule for a list, or for a single element in place of the list.
func eachOf(element rule) rule {
	return func(in *inspector, v *value) error {
		switch {
		case v.null():
			return nil
		case v.kind() == '{':
			return element(in, v)
		}
		return in.each(v, element)
	}
}

func googleContent(in *inspector, v *value) error {
	return members(passing(map[string]rule{"parts": eachOf(googlePart)}, "role"))(in, v)
}

// googlePart replaces a part by a text unless it contains its own data.
func googlePart(in *inspector, v *value) error {
	err := members(googleParts)(in, v)
	if v.emptied() {
		v.replace(`{"text":"` + notice + `"}`)
	}
	return err
}

// googleGeneration reads how much the model may write.
func googleGeneration(in *inspector, v *value) error {
	if v.null() {
		return nil
	}
	if err := in.object(v); err != nil {
		return err
	}
	for _, m := range v.parts {
		switch m.key {
		case "maxOutputTokens", "max_output_tokens":
			_ = outputLimitRule(in, m)
		case "candidateCount", "candidate_count":
			if n := countOf(m.raw); n > 1 || n == garbage { // no event at the end of a stream counts several
				return malformed("only one candidate is allowed here")
			}
		case "routingConfig", "routing_config", "modelConfig", "model_config": // lead to other models
			if err := in.external(m, "routingConfig"); err != nil {
				return err
			}
		}
	}
	return nil
}

// google reads an answer, or an event of a stream, which has the same form. In a stream, the counts
// are complete in the event with the finish reason.
func (m *meter) google(data []byte) {
	e := object(data)
	var candidates []struct {
		FinishReason string `json:"finishReason"`
	}
	_ = json.Unmarshal(e["candidates"], &candidates) // an error has no candidates
	finished := !absent(object(e["promptFeedback"])["blockReason"])
	for _, c := range candidates {
		finished = finished || c.FinishReason != ""
	}
	m.whole = m.whole || finished
	m.add(e["usageMetadata"], m.whole)
	m.fail(e["error"])
}

// modelOf returns the model that a request to Google's API names in its path; "" if
// there is none.
func modelOf(req *http.Request) string {
	rest, ok := strings.CutPrefix(req.URL.Path, "/v1beta/models/")
	model, call, isCall := strings.Cut(rest, ":")
	if !ok || !isCall || req.Method != http.MethodPost || cleanName(call) != call {
		return ""
	}
	return cleanName(model)
}
