package relay

import "regexp"

// anthropicRules are the rules for the fields of the Messages API, token counting
// included. A field without a rule passes only if external tools are allowed.
func anthropicRules(name string) rule {
	switch name {
	case "model":
		return modelRule
	case "stream":
		return streamRule
	case "messages":
		return anthropicMessages
	case "system":
		return anthropicContent
	case "tools":
		return toolsRule(anthropicTool)
	case "tool_choice":
		return anthropicToolChoice
	case "max_tokens":
		return mostRule
	case "temperature", "top_p", "top_k", "stop_sequences", "thinking", "metadata", "cache_control",
		"output_config", "output_format", "context_management", "compaction", "diagnostics":
		return pass
	case "service_tier":
		return oneOf(name, "auto", "standard_only")
	case "speed":
		return oneOf(name, "standard")
	case "mcp_servers", "container":
		return outside(name)
	case "fallbacks", "fallback_credit_token", "inference_geo":
		return never(name)
	}
	return nil
}

// anthropicClientTool matches the types of tools that run on the agent's side.
var anthropicClientTool = regexp.MustCompile(`^(bash|text_editor|memory)_[0-9]{8}$`)

func anthropicTool(in *inspector, v []byte) ([]byte, error) {
	all, t, err := in.typed(v, "a tool")
	switch {
	case err != nil:
		return nil, err
	case t == "", t == "custom", anthropicClientTool.MatchString(t):
		return v, nil
	case in.allow && !absent(field(all, "model")): // such as the advisor
		if m, _ := word(all, "model"); m == in.model {
			return v, nil
		}
	case in.allow:
		return v, nil
	}
	if name, _ := word(all, "name"); name != "" {
		in.gone = append(in.gone, name)
	}
	return nil, in.external(cleanName(t))
}

func anthropicToolChoice(in *inspector, v []byte) ([]byte, error) {
	if isNull(v) {
		return v, nil
	}
	return in.choice(v, "auto", "any", "tool", "none")
}

func anthropicMessages(in *inspector, v []byte) ([]byte, error) {
	if in.allow {
		return v, nil
	}
	return in.each(v, func(msg []byte) ([]byte, error) {
		return in.member(msg, "content", anthropicContent)
	})
}

func anthropicContent(in *inspector, v []byte) ([]byte, error) {
	if k := kindOf(v); in.allow || k == '"' || k == 'n' {
		return v, nil
	}
	return in.each(v, in.anthropicBlock)
}

func (in *inspector) anthropicBlock(v []byte) ([]byte, error) {
	all, err := in.object(v)
	if err != nil {
		return nil, err
	}
	t, ok := word(all, "type")
	if !ok || t == "" {
		return nil, malformed("a block of content has no type")
	}
	switch t {
	case "text", "thinking", "redacted_thinking", "tool_use", "tool_reference", "search_result", "compaction":
		return v, nil
	case "tool_result":
		return in.member(v, "content", anthropicContent)
	case "image", "document":
		return in.anthropicSource(v, all, t)
	}
	return in.instead(cleanName(t), "text")
}

// anthropicSource keeps a source that contains its own bytes.
func (in *inspector) anthropicSource(v []byte, all []member, kind string) ([]byte, error) {
	source, err := in.object(field(all, "source"))
	if err != nil {
		return nil, err
	}
	t, _ := word(source, "type")
	inline := absent(field(source, "url")) && absent(field(source, "file_id"))
	switch {
	case inline && (t == "base64" || t == "text"):
		return v, nil
	case inline && t == "content":
		return in.member(v, "source", func(in *inspector, v []byte) ([]byte, error) {
			return in.member(v, "content", anthropicContent)
		})
	}
	return in.instead(kind+":"+cleanName(t), "text")
}

// instead returns the text that replaces a part of a message, since the APIs refuse
// messages without content.
func (in *inspector) instead(name, kind string) ([]byte, error) {
	if err := in.external(name); err != nil {
		return nil, err
	}
	return joinMembers([]member{newMember("type", `"`+kind+`"`), newMember("text", `"`+notice+`"`)}), nil
}
