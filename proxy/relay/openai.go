package relay

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// responsesRules are the rules for the fields of the Responses API and its compaction.
func responsesRules() map[string]rule {
	rules := openAIRules()
	maps.Copy(rules, map[string]rule{
		"input":                responsesInput,
		"instructions":         stringRule,
		"tools":                toolsRule(responsesTool),
		"max_output_tokens":    outputLimitRule,
		"background":           stateless("background"),
		"conversation":         stateless("conversation"),
		"previous_response_id": stateless("previous_response_id"),
		"prompt":               stateless("prompt"),
	})
	return passing(rules, "include", "max_tool_calls", "reasoning", "stream_options", "text", "truncation", "context_management", "client_metadata")
}

// chatRules are the rules for the fields of the Chat Completions API.
func chatRules() map[string]rule {
	rules := openAIRules()
	maps.Copy(rules, map[string]rule{
		"messages":              chatMessages,
		"tools":                 toolsRule(chatTool),
		"stream_options":        chatStreamOptions,
		"max_completion_tokens": outputLimitRule,
		"max_tokens":            outputLimitRule,
		"n":                     choicesRule,
		"web_search_options":    outside("web_search_options"),
	})
	return passing(rules, "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "modalities", "prediction",
		"presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "verbosity")
}

// openAIRules are the rules for fields of both APIs.
func openAIRules() map[string]rule {
	return passing(map[string]rule{
		"model":        modelRule,
		"stream":       streamRule,
		"tool_choice":  openAIToolChoice,
		"service_tier": oneOf("service_tier", "auto", "default", "flex"),
	}, "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "safety_identifier", "store",
		"temperature", "top_logprobs", "top_p", "user")
}

func stringRule(_ *inspector, v *value) error {
	if v.kind() != '"' && !v.null() {
		return malformed("the instructions are no string")
	}
	return nil
}

// responsesTool passes tools that run on the agent's side.
func responsesTool(in *inspector, v *value) error {
	t, err := in.typed(v, "a tool")
	if err != nil {
		return err
	}
	switch t {
	case "function", "custom", "local_shell", "apply_patch", "tool_search", "namespace":
		return in.innerTools(v, true) // any of these types may contain tools
	case "shell":
		where := v.field("environment")
		if kind, _ := where.word("type"); kind == "local" {
			return in.object(where)
		}
	}
	if in.allow {
		return nil
	}
	return in.external(v, cleanName(t))
}

// innerTools checks the tools within v. If it removes all tools, it removes v or leaves an empty list.
func (in *inspector) innerTools(v *value, remove bool) error {
	tools := v.field("tools")
	if tools == nil {
		return nil
	}
	err := toolsRule(responsesTool)(in, tools)
	switch {
	case tools.gone && remove:
		v.remove()
	case tools.gone:
		tools.replace("[]")
	}
	return err
}

func chatTool(in *inspector, v *value) error {
	t, err := in.typed(v, "a tool")
	if err != nil || in.allow || t == "function" || t == "custom" {
		return err
	}
	return in.external(v, cleanName(t))
}

func openAIToolChoice(in *inspector, v *value) error {
	if in.allow || v.null() || v.kind() == '"' {
		return nil
	}
	if t, _ := v.word("type"); t == "allowed_tools" {
		return in.allowedTools(v, v)
	}
	return in.choice(v, "function", "custom", "local_shell", "apply_patch", "shell")
}

// allowedTools checks the list of a choice of type allowed_tools, and removes the choice if the list
// becomes empty. The Responses API has the list at the top level, Chat Completions in a field with
// the name of the type.
func (in *inspector) allowedTools(choice, v *value) error {
	if err := in.object(v); err != nil {
		return err
	}
	if inner := v.field("allowed_tools"); inner != nil {
		if err := in.allowedTools(choice, inner); err != nil {
			return err
		}
	}
	list := v.field("tools")
	if list == nil {
		return nil
	}
	err := in.each(list, func(in *inspector, tool *value) error {
		return in.choice(tool, "function", "custom", "local_shell", "apply_patch", "shell", "namespace", "tool_search")
	})
	if list.emptied() {
		choice.remove()
	}
	return err
}

func responsesInput(in *inspector, v *value) error {
	if v.null() || v.kind() == '"' {
		return nil
	}
	return in.each(v, responsesItem)
}

func responsesItem(in *inspector, v *value) error {
	t, err := in.typed(v, "an item")
	if err != nil {
		return err
	}
	if t == "" && !v.field("role").null() {
		t = "message"
	}
	if refersByID(t, v) {
		if t != "reasoning" {
			return stateless("an item with nothing but an id")(in, v)
		}
		v.field("id").remove() // codex sends such items from providers that encrypt nothing
	}
	if err := in.innerTools(v, t == "additional_tools"); err != nil || v.gone {
		return err
	}
	switch t {
	case "message", "agent_message":
		return in.responsesParts(v, "content")
	case "function_call_output", "custom_tool_call_output":
		return in.responsesParts(v, "output")
	case "function_call", "custom_tool_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
		"apply_patch_call", "apply_patch_call_output", "tool_search_call", "reasoning", "compaction", "compaction_summary",
		"compaction_trigger", "context_compaction", "additional_tools", "tool_search_output":
		return nil
	case "item_reference", "": // an item without a type and role is a reference, too
		return stateless("item_reference")(in, v)
	}
	if in.allow {
		return nil
	}
	return in.external(v, "input:"+cleanName(t))
}

// refersByID reports whether an item has an id and no content. The provider would look up the content.
func refersByID(kind string, item *value) bool {
	if item.field("id").null() {
		return false
	}
	if strings.HasSuffix(kind, "_output") { // an output may be empty
		return item.field("output").null() && item.field("tools").null()
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
		v := item.field(name)
		return !v.null() && len(v.raw) > len(`""`) && len(bytes.Trim(v.raw, "[] \t\r\n")) > 0
	})
}

// responsesParts checks the parts of a message or of a tool's output.
func (in *inspector) responsesParts(item *value, name string) error {
	kind := "input_text"
	if role, _ := item.word("role"); role == "assistant" {
		kind = "output_text"
	}
	return in.content(item.field(name), "part", func(in *inspector, v *value, t string) error {
		switch t {
		case "input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text", "encrypted_content", "input_audio":
			return nil
		case "input_image", "input_file":
			if inline(v) {
				return nil
			}
		}
		return in.instead(v, cleanName(t), kind)
	})
}

func chatMessages(in *inspector, v *value) error {
	return in.each(v, func(in *inspector, msg *value) error {
		if audio := msg.field("audio"); !audio.null() { // the id of an earlier answer
			return refuse(providerState, "a request must not refer to state at the provider: audio is not allowed here")
		}
		if err := in.object(msg); err != nil {
			return err
		}
		return in.content(msg.field("content"), "part", chatPart)
	})
}

func chatPart(in *inspector, v *value, kind string) error {
	switch kind {
	case "text", "refusal", "input_audio":
		return nil
	case "image_url":
		if inline(v) {
			return nil
		}
	case "file":
		file := v.field("file")
		if err := in.object(file); err != nil || inline(file) {
			return err
		}
	}
	return in.instead(v, cleanName(kind), "text")
}

// inline reports whether a part contains its own bytes and refers to nothing.
func inline(part *value) bool {
	if !part.field("file_id").null() || !part.field("file_url").null() {
		return false
	}
	if data := part.field("file_data"); !data.null() {
		if s, ok := data.text(); !ok || !strings.HasPrefix(s, "data:") && strings.Contains(s, ":") {
			return false
		}
	}
	image := part.field("image_url")
	if image.kind() == '{' {
		if slices.ContainsFunc(image.parts, respelled) {
			return false
		}
		image = image.field("url")
	}
	s, ok := image.text()
	return image.null() || ok && strings.HasPrefix(s, "data:")
}

// chatStreamOptions asks the provider to count tokens, because in a stream it otherwise does not.
func chatStreamOptions(in *inspector, v *value) error {
	if v.null() {
		v.remove() // inspect adds it
		return nil
	}
	if err := in.object(v); err != nil {
		return err
	}
	in.options = true
	count := v.field("include_usage")
	if count.kind() == 't' {
		return nil
	}
	in.hideUsage = true
	if count != nil {
		count.remove()
	}
	v.add("include_usage", "true")
	return nil
}
