package request

// Messages is the form of the Messages API and its token counting.
func Messages() Form {
	var blocks rule
	amount := object(fields{"value": plain})
	cited := object(fields{
		"cited_text": text, "title": text, "document_title": text, "document_index": plain, "search_result_index": plain, "source": plain,
		"start_char_index": plain, "end_char_index": plain, "start_page_number": plain, "end_page_number": plain,
		"start_block_index": plain, "end_block_index": plain,
	})
	citations := or(list(cited), '{', object(fields{"enabled": plain}))
	// A source has its own bytes, and is removed otherwise.
	source := byType(map[string]form{
		"base64":  {fields{"media_type": plain, "data": inline, "url": strange, "file_id": strange}, "data"},
		"text":    {fields{"media_type": plain, "data": text, "url": strange, "file_id": strange}, "data"},
		"content": {fields{"content": later(&blocks)}, "content"},
	}, silently)
	blocks = content(map[string]form{
		"text":              {fields{"text": text, "cache_control": cacheControl, "citations": citations}, ""},
		"thinking":          {fields{"thinking": text, "signature": text}, ""},
		"redacted_thinking": {fields{"data": text}, ""},
		"tool_use":          {fields{"id": plain, "name": plain, "input": data, "cache_control": cacheControl, "caller": byType(map[string]form{"direct": {}}, unknown(""))}, ""},
		"tool_result":       {fields{"tool_use_id": plain, "is_error": plain, "content": later(&blocks), "cache_control": cacheControl}, ""},
		"tool_reference":    {fields{"tool_name": plain, "cache_control": cacheControl}, ""},
		"search_result":     {fields{"source": plain, "title": text, "content": later(&blocks), "citations": citations, "cache_control": cacheControl}, "source"},
		"image":             {fields{"source": source, "cache_control": cacheControl}, "source"},
		"document":          {fields{"source": source, "title": text, "context": text, "citations": citations, "cache_control": cacheControl}, "source"},
		"compaction":        {fields{"content": text, "encrypted_content": text, "cache_control": cacheControl}, ""},
	}, func(*value) string { return "text" })
	tool := form{fields{
		"name": plain, "description": text, "input_schema": schema, "input_examples": data, "cache_control": cacheControl, "strict": plain,
		"eager_input_streaming": plain, "defer_loading": plain, "max_characters": plain,
		"allowed_callers": list(func(in *inspector, v *value) {
			if s, _ := v.text(); s != "direct" {
				in.outside(v, "allowed_callers")
			}
		}),
	}, ""}
	format := object(fields{"name": plain, "schema": schema})
	trigger := or(plain, '{', amount)
	return Form{fields: fields{
		"model":    modelField,
		"stream":   stream,
		"messages": list(object(fields{"role": plain, "content": blocks})),
		"system":   blocks,
		// These tools run on the agent's side.
		"tools":       tools(byType(map[string]form{"": tool, "custom": tool, "bash_DATE": tool, "text_editor_DATE": tool, "memory_DATE": tool}, unknown(""))),
		"tool_choice": byType(choiceOf(fields{"name": plain, "disable_parallel_tool_use": plain}, "auto", "any", "tool", "none"), unknown("tool_choice:")),
		"max_tokens":  outputLimit,
		"temperature": plain, "top_p": plain, "top_k": plain,
		"stop_sequences": list(text),
		"thinking":       object(fields{"budget_tokens": plain, "display": plain}),
		"metadata":       object(fields{"user_id": text}),
		"cache_control":  cacheControl,
		"output_config":  object(fields{"effort": plain, "format": format, "task_budget": object(fields{"total": plain, "remaining": plain})}),
		"output_format":  format,
		"context_management": object(fields{"edits": list(object(fields{
			"trigger": trigger, "keep": trigger, "clear_at_least": trigger, "exclude_tools": list(plain), "clear_tool_inputs": each(plain),
			"instructions": text, "pause_after_compaction": plain,
		}))}),
		"service_tier":          oneOf("service_tier", "auto", "standard_only"),
		"speed":                 oneOf("speed", "standard"),
		"mcp_servers":           empty,
		"fallbacks":             oneOf("fallbacks"),
		"fallback_credit_token": oneOf("fallback_credit_token"),
		"inference_geo":         oneOf("inference_geo"),
	}}
}

// strange makes a source that says two things unusable.
func strange(in *inspector, v *value) {
	if !v.null() && !in.Allow {
		v.in.remove()
	}
}

// choiceOf returns the same form for several types.
func choiceOf(known fields, types ...string) map[string]form {
	all := map[string]form{}
	for _, t := range types {
		all[t] = form{known, ""}
	}
	return all
}
