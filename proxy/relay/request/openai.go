package request

import (
	"maps"
	"slices"
	"strings"
)

// Responses is the form of the Responses API and its compaction.
func Responses() Form {
	var tool rule
	inner := tools(later(&tool))
	functionTool := form{fields{
		"name": plain, "description": text, "parameters": schema, "output_schema": schema, "strict": plain, "defer_loading": plain, "execution": plain,
		"tools": orElse(inner, func(v *value) { v.in.remove() }), "format": object(fields{"syntax": plain, "definition": text}),
	}, ""}
	// These tools run on the agent's side. Any of them may contain tools.
	tool = byType(map[string]form{
		"function": functionTool, "custom": functionTool, "local_shell": functionTool, "apply_patch": functionTool, "tool_search": functionTool, "namespace": functionTool,
		"shell": {fields{"environment": byType(map[string]form{"local": {}}, silently)}, "environment"},
	}, unknown(""))
	chosen := choiceOf(fields{"name": plain, "namespace": plain}, "function", "custom", "local_shell", "apply_patch", "shell")
	return Form{cache: true, fields: openAI(chosen, fields{"tools": choosing(chosen), "mode": plain}, fields{
		"input":                textOr(inputItem(inner)),
		"instructions":         instructions,
		"tools":                tools(tool),
		"max_output_tokens":    outputLimit,
		"include":              list(plain),
		"max_tool_calls":       plain,
		"reasoning":            object(fields{"effort": plain, "summary": plain, "generate_summary": plain, "context": plain}),
		"stream_options":       object(fields{"include_usage": plain, "include_obfuscation": plain}),
		"text":                 object(fields{"verbosity": plain, "format": object(fields{"name": plain, "description": text, "strict": plain, "schema": schema})}),
		"truncation":           plain,
		"context_management":   list(object(fields{"compact_threshold": plain})),
		"client_metadata":      values(scalar),
		"background":           stateless("background"),
		"conversation":         stateless("conversation"),
		"previous_response_id": stateless("previous_response_id"),
		"prompt":               stateless("prompt"),
	})}
}

// inputItem is the rule for the items of the input of the Responses API.
func inputItem(inner rule) rule {
	breakpoint := caching(values(plain))
	parts := content(map[string]form{
		"input_text":        {fields{"prompt_cache_breakpoint": breakpoint, "text": text}, ""},
		"output_text":       {fields{"text": text, "annotations": empty, "logprobs": empty}, ""},
		"text":              {fields{"text": text}, ""},
		"summary_text":      {fields{"text": text}, ""},
		"reasoning_text":    {fields{"text": text}, ""},
		"refusal":           {fields{"refusal": text}, ""},
		"encrypted_content": {fields{"encrypted_content": text}, ""},
		"input_audio":       {fields{"prompt_cache_breakpoint": breakpoint, "input_audio": needing("data", fields{"data": inline, "format": plain})}, "input_audio"},
		"input_image":       {fields{"prompt_cache_breakpoint": breakpoint, "image_url": dataURL, "detail": plain}, "image_url"},
		"input_file":        {fields{"prompt_cache_breakpoint": breakpoint, "file_data": inline, "filename": plain, "detail": plain}, "file_data"},
	}, func(part *value) string {
		if role, _ := part.in.in.word("role"); role == "assistant" {
			return "output_text"
		}
		return "input_text"
	})
	said := orElse(text, func(v *value) { v.replace(`"` + notice + `"`) }) // must be there
	thought := list(object(fields{"text": text}))
	item := func(f fields) form {
		maps.Copy(f, fields{"id": plain, "call_id": plain, "status": plain, "created_by": plain})
		return form{f, ""}
	}
	message := item(fields{"role": plain, "name": plain, "phase": plain, "content": parts, "author": plain, "recipient": plain, "channel": plain})
	call := item(fields{"name": plain, "namespace": plain, "arguments": text, "input": text})
	output := item(fields{"name": plain, "output": parts})
	compaction := item(fields{"encrypted_content": text})
	items := map[string]form{
		"message": message, "agent_message": message, "function_call": call, "custom_tool_call": call,
		"function_call_output": output, "custom_tool_call_output": output,
		"local_shell_call": item(fields{"action": object(fields{
			"command": list(text), "env": values(text), "timeout_ms": plain, "user": plain, "working_directory": text,
		})}),
		"local_shell_call_output": item(fields{"output": said}),
		"shell_call": item(fields{
			"action": object(fields{"commands": list(text), "timeout_ms": plain, "max_output_length": plain}), "environment": object(nil),
		}),
		"shell_call_output": item(fields{"max_output_length": plain, "output": list(object(fields{
			"stdout": text, "stderr": text, "created_by": plain, "outcome": object(fields{"exit_code": plain}),
		}))}),
		"apply_patch_call":        item(fields{"operation": object(fields{"path": text, "diff": text})}),
		"apply_patch_call_output": item(fields{"output": said}),
		"tool_search_call":        item(fields{"execution": plain, "arguments": data}),
		"tool_search_output":      item(fields{"execution": plain, "tools": orElse(inner, func(v *value) { v.replace("[]") })}),
		"additional_tools":        item(fields{"role": plain, "tools": orElse(inner, func(v *value) { v.in.remove() })}),
		"reasoning":               item(fields{"summary": thought, "content": thought, "encrypted_content": text}),
		"compaction":              compaction, "compaction_summary": compaction, "compaction_trigger": compaction, "context_compaction": compaction,
	}
	return func(in *inspector, v *value) {
		if !in.is(v, '{', "object") {
			return
		}
		kind := in.kindOf(v)
		if kind == "" && !v.field("role").null() {
			kind = "message"
		}
		switch {
		case kind == "item_reference" || kind == "": // an item without a type and role is a reference, too
			stateless("item_reference")(in, v)
		case refersByID(kind, v) && kind != "reasoning":
			stateless("an item with nothing but an id")(in, v)
		case refersByID(kind, v):
			v.field("id").remove() // codex sends such items from providers that encrypt nothing
		}
		in.typed(v, kind, items, unknown("input:"))
	}
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
		return !v.null() && (len(v.parts) > 0 || !v.container() && len(v.raw) > len(`""`))
	})
}

// Chat is the form of the Chat Completions API.
func Chat() Form {
	parts := content(map[string]form{
		"text":        {fields{"text": text, "cache_control": cacheControl, "prompt_cache_breakpoint": caching(values(plain))}, ""},
		"refusal":     {fields{"refusal": text}, ""},
		"input_audio": {fields{"input_audio": needing("data", fields{"data": inline, "format": plain})}, "input_audio"},
		"image_url":   {fields{"image_url": or(dataURL, '{', needing("url", fields{"url": dataURL, "detail": plain}))}, "image_url"},
		"file":        {fields{"file": needing("file_data", fields{"file_data": inline, "filename": plain})}, "file"},
	}, func(*value) string { return "text" })
	function := object(fields{"name": plain, "description": text, "parameters": schema, "strict": plain})
	called := object(fields{"name": plain, "arguments": text, "input": text})
	call := form{fields{"id": plain, "index": plain, "function": called, "custom": called}, ""}
	message := fields{
		"role": plain, "name": plain, "content": parts, "refusal": text, "reasoning_content": text, "reasoning": text, "tool_call_id": plain,
		"tool_calls":    list(byType(map[string]form{"": call, "function": call, "custom": call}, unknown("tool_calls:"))),
		"function_call": called, "cache_control": cacheControl,
		"reasoning_details": list(object(fields{"id": plain, "index": plain, "format": plain, "text": text, "summary": text, "data": text, "signature": text})),
		"audio":             stateless("audio"), // the id of an earlier answer
	}
	custom := object(fields{"name": plain, "description": text, "format": object(fields{"grammar": object(fields{"syntax": plain, "definition": text})})})
	named := object(fields{"name": plain})
	chosen := choiceOf(fields{"function": named, "custom": named}, "function", "custom")
	return Form{cache: true, chat: true, fields: openAI(chosen, fields{"allowed_tools": needing("tools", fields{"mode": plain, "tools": choosing(chosen)})}, fields{
		"messages": list(object(message)),
		"tools": tools(byType(map[string]form{
			"function": {fields{"function": function, "cache_control": cacheControl}, ""}, "custom": {fields{"custom": custom}, ""},
		}, unknown(""))),
		"functions":             list(function),
		"function_call":         plainOr(fields{"name": plain}),
		"stream_options":        streamOptions,
		"max_completion_tokens": outputLimit,
		"max_tokens":            outputLimit,
		"n":                     choices,
		"audio":                 object(fields{"voice": plain, "format": plain}),
		"modalities":            list(plain),
		"prediction":            object(fields{"content": parts}),
		"response_format":       object(fields{"json_schema": object(fields{"name": plain, "description": text, "strict": plain, "schema": schema})}),
		"stop":                  each(text),
		"logit_bias":            values(plain),
		"frequency_penalty":     plain, "logprobs": plain, "presence_penalty": plain, "reasoning_effort": plain, "seed": plain, "verbosity": plain,
	})}
}

// openAI adds the fields of both APIs. A choice of tools is one of the chosen, or a list, which is in fields of its own.
func openAI(chosen map[string]form, listed, own fields) fields {
	choice := maps.Clone(chosen)
	choice["allowed_tools"] = form{listed, slices.Sorted(maps.Keys(listed))[len(listed)-1]}
	maps.Copy(own, fields{
		"model":                modelField,
		"stream":               stream,
		"tool_choice":          or(plain, '{', byType(choice, unknown("tool_choice:"))),
		"service_tier":         oneOf("service_tier", "auto", "default", "flex"),
		"metadata":             values(scalar),
		"prompt_cache_options": caching(values(plain)),
		"prompt_cache_key":     caching(plain), "prompt_cache_retention": caching(plain),
	})
	for _, name := range []string{
		"parallel_tool_calls", "safety_identifier", "store", "temperature", "top_logprobs", "top_p", "user",
	} {
		own[name] = plain
	}
	return own
}

// choosing checks the tools of a choice of type allowed_tools, and removes the list if it becomes empty.
func choosing(chosen map[string]form) rule {
	all := maps.Clone(chosen)
	maps.Copy(all, choiceOf(fields{"name": plain}, "namespace", "tool_search"))
	return unlessEmptied(list(byType(all, unknown("tool_choice:"))))
}

// orElse calls then if the rule removed the value.
func orElse(r rule, then func(*value)) rule {
	return func(in *inspector, v *value) {
		if r(in, v); v.gone {
			then(v)
		}
	}
}

func instructions(in *inspector, v *value) {
	if v.kind() != '"' && !v.null() {
		in.fail(Bad, "the instructions are no string")
	}
}

// streamOptions asks the provider to count tokens, because in a stream it otherwise does not.
func streamOptions(in *inspector, v *value) {
	object(fields{"include_usage": plain, "include_obfuscation": plain})(in, v)
	count := v.field("include_usage")
	switch {
	case v.null():
		v.remove() // the check of the whole request adds it
		return
	case count.kind() != 't':
		in.hideUsage = true
		if count != nil {
			count.remove()
		}
		v.add("include_usage", "true")
	}
	in.options = true
}
