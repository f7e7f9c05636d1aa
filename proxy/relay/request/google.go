package request

import "strings"

// Generate is the form of generateContent. As in the JSON of protocol buffers, names are in camel case, or as
// in the API's definition.
func Generate() Form { return Form{fields: generate()} }

// CountTokens is the form of countTokens, which may have a whole request in a field.
func CountTokens() Form {
	all := generate()
	return Form{fields: both(fields{"contents": all["contents"], "generateContentRequest": object(all), "model": pathModel})}
}

func generate() fields {
	bytes := object(both(fields{"mimeType": plain, "data": inline, "displayName": text}))
	response := both(fields{
		"id": plain, "name": plain, "response": data, "willContinue": plain, "scheduling": plain,
		"parts": each(object(both(fields{"inlineData": bytes}))), // media of a result
	})
	part := object(both(fields{
		"text": text, "thought": plain, "thoughtSignature": text, "inlineData": bytes,
		"functionCall":     object(both(fields{"id": plain, "name": plain, "args": data, "willContinue": plain})),
		"functionResponse": object(response),
		"videoMetadata":    object(both(fields{"startOffset": plain, "endOffset": plain, "fps": plain})),
		"mediaResolution":  plainOr(fields{"level": plain}),
	}))
	// A part that is empty afterwards becomes a text.
	said := object(fields{"role": plain, "parts": each(func(in *inspector, v *value) {
		if part(in, v); v.emptied() {
			v.replace(`{"text":"` + notice + `"}`)
		}
	})})
	declaration := object(both(fields{
		"name": plain, "description": text, "behavior": plain, "parameters": schema, "response": schema, "parametersJsonSchema": schema, "responseJsonSchema": schema,
	}))
	calling := object(both(fields{"mode": plain, "allowedFunctionNames": list(plain), "streamFunctionCallArguments": plain}))
	return both(fields{
		"contents":          each(said),
		"systemInstruction": said,
		// A tool is a list of functions, which run on the agent's side, or a provider's tool (Google Search,
		// code execution, URL contexts, maps, files).
		"tools":            tools(unlessEmptied(object(both(fields{"functionDeclarations": list(declaration)})))),
		"toolConfig":       unlessEmptied(object(both(fields{"functionCallingConfig": calling, "includeServerSideToolInvocations": plain}))),
		"generationConfig": object(both(generation())),
		"safetySettings":   list(object(fields{"category": plain, "threshold": plain, "method": plain})),
		"cachedContent":    stateless("cachedContent"),
		"model":            pathModel,
	})
}

func generation() fields {
	elsewhere := func(in *inspector, v *value) { in.remove(v, "routingConfig") } // leads to other models
	all := fields{
		"maxOutputTokens": outputLimit, "candidateCount": oneCandidate, "routingConfig": elsewhere, "modelConfig": elsewhere,
		"stopSequences": list(text), "responseSchema": schema, "responseJsonSchema": schema, "responseModalities": list(plain),
		"thinkingConfig": object(both(fields{"includeThoughts": plain, "thinkingBudget": plain, "thinkingLevel": plain})),
	}
	for _, name := range []string{
		"temperature", "topP", "topK", "seed", "responseMimeType", "presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs",
		"mediaResolution", "enableEnhancedCivicAnswers",
	} {
		all[name] = plain
	}
	return all
}

// pathModel refuses a model other than the path's.
func pathModel(in *inspector, v *value) {
	if s, _ := v.text(); s != "models/"+in.Model && !v.null() {
		in.fail(BadModel, "only the model %s is allowed here", in.Model)
	}
}

// oneCandidate: no event at the end of a stream counts several.
func oneCandidate(in *inspector, v *value) {
	if n := number(v.raw); !v.null() && (n > 1 || n < 0) {
		in.fail(Bad, "only one candidate is allowed here")
	}
}

// both adds the name of each field in the API's definition.
func both(known fields) fields {
	all := fields{}
	for name, r := range known {
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
