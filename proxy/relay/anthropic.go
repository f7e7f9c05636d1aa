package relay

import "regexp"

// anthropicRules are the rules for the fields of the Messages API and its token counting.
func anthropicRules() map[string]rule {
	return passing(map[string]rule{
		"model":                 modelRule,
		"stream":                streamRule,
		"messages":              anthropicMessages,
		"system":                anthropicContent,
		"tools":                 toolsRule(anthropicTool),
		"tool_choice":           anthropicToolChoice,
		"max_tokens":            outputLimitRule,
		"service_tier":          oneOf("service_tier", "auto", "standard_only"),
		"speed":                 oneOf("speed", "standard"),
		"mcp_servers":           outside("mcp_servers"),
		"container":             outside("container"),
		"fallbacks":             oneOf("fallbacks"),
		"fallback_credit_token": oneOf("fallback_credit_token"),
		"inference_geo":         oneOf("inference_geo"),
	}, "temperature", "top_p", "top_k", "stop_sequences", "thinking", "metadata", "cache_control",
		"output_config", "output_format", "context_management", "compaction", "diagnostics")
}

// anthropicClientTool matches the types of tools that run on the agent's side.
var anthropicClientTool = regexp.MustCompile(`^(bash|text_editor|memory)_[0-9]{8}$`)

func anthropicTool(in *inspector, v *value) error {
	t, err := in.typed(v, "a tool")
	model, _ := v.word("model")
	switch {
	case err != nil:
		return err
	case t == "", t == "custom", anthropicClientTool.MatchString(t):
		return nil
	case in.allow && (v.field("model").null() || model == in.model): // the advisor's tool, for example, has another model
		return nil
	}
	if name, _ := v.word("name"); name != "" {
		in.removedTools = append(in.removedTools, name)
	}
	return in.external(v, cleanName(t))
}

func anthropicToolChoice(in *inspector, v *value) error {
	if v.null() {
		return nil
	}
	return in.choice(v, "auto", "any", "tool", "none")
}

func anthropicMessages(in *inspector, v *value) error {
	if in.allow {
		return nil
	}
	return in.each(v, func(in *inspector, msg *value) error {
		if err := in.object(msg); err != nil {
			return err
		}
		return anthropicContent(in, msg.field("content"))
	})
}

func anthropicContent(in *inspector, v *value) error { return in.content(v, "block", anthropicBlock) }

func anthropicBlock(in *inspector, v *value, kind string) error {
	switch kind {
	case "text", "thinking", "redacted_thinking", "tool_use", "tool_reference", "search_result", "compaction":
		return nil
	case "tool_result":
		return anthropicContent(in, v.field("content"))
	case "image", "document":
		return in.anthropicSource(v, kind)
	}
	return in.instead(v, cleanName(kind), "text")
}

// anthropicSource replaces a source unless it contains its own bytes.
func (in *inspector) anthropicSource(v *value, kind string) error {
	source := v.field("source")
	if err := in.object(source); err != nil {
		return err
	}
	t, _ := source.word("type")
	inline := source.field("url").null() && source.field("file_id").null()
	switch {
	case inline && (t == "base64" || t == "text"):
		return nil
	case inline && t == "content":
		return anthropicContent(in, source.field("content"))
	}
	return in.instead(v, kind+":"+cleanName(t), "text")
}
