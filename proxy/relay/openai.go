package relay

import (
	"bytes"
	"slices"
	"strings"
)

// responsesRules are the rules for the fields of the Responses API, compaction
// included. A field without a rule passes only if external tools are allowed.
func responsesRules(name string) rule {
	switch name {
	case "model":
		return modelRule
	case "stream":
		return streamRule
	case "input":
		return responsesInput
	case "instructions":
		return stringRule
	case "tools":
		return toolsRule(responsesTool)
	case "tool_choice":
		return openAIToolChoice
	case "max_output_tokens":
		return mostRule
	case "include", "max_tool_calls", "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
		"prompt_cache_options", "reasoning", "safety_identifier", "store", "stream_options", "temperature", "text", "top_logprobs", "top_p",
		"truncation", "user", "context_management", "client_metadata":
		return pass
	case "service_tier":
		return oneOf(name, "auto", "default", "flex")
	case "background", "conversation", "previous_response_id", "prompt":
		return stateless(name)
	}
	return nil
}

// chatRules are the rules for the fields of the Chat Completions API.
func chatRules(name string) rule {
	switch name {
	case "model":
		return modelRule
	case "stream":
		return streamRule
	case "messages":
		return chatMessages
	case "tools":
		return toolsRule(chatTool)
	case "tool_choice":
		return openAIToolChoice
	case "stream_options":
		return chatStreamOptions
	case "max_completion_tokens", "max_tokens":
		return mostRule
	case "n":
		return choicesRule
	case "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
		"metadata", "modalities", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_retention",
		"prompt_cache_options", "reasoning_effort", "response_format", "safety_identifier", "seed", "stop", "store", "temperature",
		"top_logprobs", "top_p", "user", "verbosity":
		return pass
	case "service_tier":
		return oneOf(name, "auto", "default", "flex")
	case "web_search_options":
		return outside(name)
	}
	return nil
}

func stringRule(_ *inspector, v []byte) ([]byte, error) {
	if k := kindOf(v); k != '"' && k != 'n' {
		return nil, malformed("the instructions are no string")
	}
	return v, nil
}

// responsesTool lets the tools pass that run on the agent's side.
func responsesTool(in *inspector, v []byte) ([]byte, error) {
	all, t, err := in.typed(v, "a tool")
	if err != nil {
		return nil, err
	}
	switch t {
	case "function", "custom", "local_shell", "apply_patch", "tool_search", "namespace":
		return in.namespace(v) // any of these types may contain tools
	case "shell":
		if where, _ := word(members(field(all, "environment")), "type"); where == "local" {
			_, err := in.object(field(all, "environment"))
			return v, err
		}
	}
	if in.allow {
		return v, nil
	}
	return nil, in.external(cleanName(t))
}

// namespace checks the tools within a tool, which is removed if none is left.
func (in *inspector) namespace(v []byte) ([]byte, error) {
	empty := false
	out, err := in.member(v, "tools", func(in *inspector, v []byte) ([]byte, error) {
		kept, err := toolsRule(responsesTool)(in, v)
		empty = err == nil && kept == nil
		return kept, err
	})
	if empty {
		return nil, err
	}
	return out, err
}

func chatTool(in *inspector, v []byte) ([]byte, error) {
	_, t, err := in.typed(v, "a tool")
	if err != nil {
		return nil, err
	}
	if in.allow || t == "function" || t == "custom" {
		return v, nil
	}
	return nil, in.external(cleanName(t))
}

func openAIToolChoice(in *inspector, v []byte) ([]byte, error) {
	if k := kindOf(v); in.allow || k == '"' || k == 'n' {
		return v, nil
	}
	all, err := in.object(v)
	if err != nil {
		return nil, err
	}
	if t, _ := word(all, "type"); t == "allowed_tools" {
		return in.allowedTools(v)
	}
	return in.choice(v, "function", "custom", "local_shell", "apply_patch", "shell")
}

// allowedTools checks the list of a choice of type allowed_tools. The Responses API has
// the list at the top level, Chat Completions in a field named like the type.
func (in *inspector) allowedTools(v []byte) ([]byte, error) {
	empty := false
	var walk func(v []byte) ([]byte, error)
	walk = func(v []byte) ([]byte, error) {
		return in.members(v, func(key string, v []byte) ([]byte, error) {
			switch key {
			case "allowed_tools":
				return walk(v)
			case "tools":
				kept, err := in.each(v, in.allowedTool)
				empty = err == nil && !same(kept, v) && len(elements(kept)) == 0
				return kept, err
			}
			return v, nil
		})
	}
	out, err := walk(v)
	if empty {
		return nil, err
	}
	return out, err
}

func (in *inspector) allowedTool(v []byte) ([]byte, error) {
	return in.choice(v, "function", "custom", "local_shell", "apply_patch", "shell", "namespace", "tool_search")
}

func responsesInput(in *inspector, v []byte) ([]byte, error) {
	if k := kindOf(v); k == '"' || k == 'n' {
		return v, nil
	}
	return in.each(v, in.responsesItem)
}

func (in *inspector) responsesItem(v []byte) ([]byte, error) {
	all, t, err := in.typed(v, "an item")
	if err != nil {
		return nil, err
	}
	if t == "" && !absent(field(all, "role")) {
		t = "message"
	}
	if refersByID(t, all) {
		if t != "reasoning" {
			return stateless("an item that is but an id")(in, v)
		}
		none := func(*inspector, []byte) ([]byte, error) { return nil, nil }
		if v, err = in.member(v, "id", none); err != nil { // codex sends such items, from providers that encrypt nothing
			return nil, err
		}
		all = members(v)
	}
	if field(all, "tools") != nil {
		if v, err = in.itemTools(v, t); v == nil {
			return nil, err
		}
		all = members(v)
	}
	switch t {
	case "message", "agent_message":
		return in.responsesParts(v, "content", all)
	case "function_call_output", "custom_tool_call_output":
		return in.responsesParts(v, "output", all)
	case "function_call", "custom_tool_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
		"apply_patch_call", "apply_patch_call_output", "tool_search_call", "reasoning", "compaction", "compaction_summary",
		"compaction_trigger", "context_compaction", "additional_tools", "tool_search_output":
		return v, nil
	case "item_reference", "": // an item without a type and role is a reference, too
		return stateless("item_reference")(in, v)
	}
	if in.allow {
		return v, nil
	}
	return nil, in.external("input:" + cleanName(t))
}

// refersByID reports whether an item has an id and no content, which the provider then
// takes from what it keeps.
func refersByID(kind string, all []member) bool {
	if absent(field(all, "id")) {
		return false
	}
	if strings.HasSuffix(kind, "_output") { // an output may be empty
		return absent(field(all, "output")) && absent(field(all, "tools"))
	}
	names := []string{"encrypted_content"}
	switch kind {
	case "message", "agent_message":
		names = []string{"content"}
	case "reasoning":
		names = append(names, "content")
	case "function_call", "tool_search_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call":
		names = []string{"arguments", "input", "action", "operation"}
	case "additional_tools":
		names = []string{"tools"}
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		v := field(all, name)
		return !absent(v) && len(v) > len(`""`) && len(bytes.Trim(v, "[] \t\r\n")) > 0
	})
}

// itemTools checks the tools in an input item of any type. An additional_tools item of
// which none is left is removed.
func (in *inspector) itemTools(v []byte, kind string) ([]byte, error) {
	empty := false
	out, err := in.member(v, "tools", func(in *inspector, v []byte) ([]byte, error) {
		kept, err := toolsRule(responsesTool)(in, v)
		if err == nil && kept == nil {
			empty = true
			return []byte("[]"), nil
		}
		return kept, err
	})
	if empty && kind == "additional_tools" {
		return nil, err
	}
	return out, err
}

// responsesParts checks the parts of a message or of a tool's output.
func (in *inspector) responsesParts(v []byte, name string, item []member) ([]byte, error) {
	kind := "input_text"
	if role, _ := word(item, "role"); role == "assistant" {
		kind = "output_text"
	}
	return in.parts(v, name, func(v []byte) ([]byte, error) {
		all, err := in.object(v)
		if err != nil {
			return nil, err
		}
		t, _ := word(all, "type")
		switch t {
		case "input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text", "encrypted_content", "input_audio":
			return v, nil
		case "input_image", "input_file":
			if inline(all) {
				return v, nil
			}
		case "":
			return nil, malformed("a part of content has no type")
		}
		return in.instead(cleanName(t), kind)
	})
}

func chatMessages(in *inspector, v []byte) ([]byte, error) {
	return in.each(v, func(msg []byte) ([]byte, error) {
		if !absent(field(members(msg), "audio")) { // the id of an earlier answer
			return nil, refuse(keptState, "a request must hold all it refers to: audio is not allowed here")
		}
		return in.parts(msg, "content", func(v []byte) ([]byte, error) {
			all, err := in.object(v)
			if err != nil {
				return nil, err
			}
			t, _ := word(all, "type")
			switch t {
			case "text", "refusal", "input_audio":
				return v, nil
			case "image_url":
				if inline(all) {
					return v, nil
				}
			case "file":
				if file, err := in.object(field(all, "file")); err != nil || inline(file) {
					return v, err
				}
			case "":
				return nil, malformed("a part of content has no type")
			}
			return in.instead(cleanName(t), "text")
		})
	})
}

// parts passes the elements of the named field through f.
func (in *inspector) parts(v []byte, name string, f func([]byte) ([]byte, error)) ([]byte, error) {
	return in.member(v, name, func(in *inspector, v []byte) ([]byte, error) {
		if k := kindOf(v); in.allow || k == '"' || k == 'n' {
			return v, nil
		}
		return in.each(v, f)
	})
}

// inline reports whether a part contains its own bytes and refers to nothing.
func inline(all []member) bool {
	for _, m := range all {
		switch m.key {
		case "file_id", "file_url":
			if !isNull(m.value) {
				return false
			}
		case "file_data":
			if s, ok := text(m.value); !isNull(m.value) && (!ok || !strings.HasPrefix(s, "data:") && strings.Contains(s, ":")) {
				return false
			}
		case "image_url":
			v := m.value
			if kindOf(v) == '{' {
				of := members(v)
				if slices.ContainsFunc(of, func(m member) bool { return respelled(m.key) }) {
					return false
				}
				v = field(of, "url")
			}
			if s, ok := text(v); !absent(v) && (!ok || !strings.HasPrefix(s, "data:")) {
				return false
			}
		}
	}
	return true
}

// chatStreamOptions asks the provider to count tokens, which in a stream it does only
// on request.
func chatStreamOptions(in *inspector, v []byte) ([]byte, error) {
	if isNull(v) {
		return nil, nil // countChat adds it
	}
	all, err := in.object(v)
	if err != nil {
		return nil, err
	}
	in.options = true
	if kindOf(field(all, "include_usage")) == 't' {
		return v, nil
	}
	in.hideUsage = true
	all = slices.DeleteFunc(all, func(m member) bool { return m.key == "include_usage" })
	return joinMembers(append(all, newMember("include_usage", "true"))), nil
}

// countChat does the same for a streamed request without options.
func (in *inspector) countChat(body []byte) []byte {
	if in.options || !in.stream {
		return body
	}
	in.hideUsage = true
	return joinMembers(append(members(body), newMember("stream_options", `{"include_usage":true}`)))
}
