package compiler

// DesktopTask asks for actions on a desktop. It is deferred: no verifier yet.
const DesktopTask Family = "desktop_task"

func desktopTask() *family {
	return deferred(DesktopTask, "Reach a goal on a desktop.",
		map[string]Lane{"success_check": HiddenLane},
		optional("success_check", anything("How success is recognised.")),
	)
}
