package run

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/admission"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/workspace"
)

// request returns a producer's request for a task, without the fields that differ between attempts.
func (c config) request(task *compiler.Task, found images) (harness.Request, error) {
	files, err := workspace.PlanAgent(task, c.Pack)
	if err != nil {
		return harness.Request{}, err
	}
	policy := c.policy(task)
	return harness.Request{
		Task: task.AgentView(), Kind: task.Family().CandidateKind, Plan: files, Image: found.image(task), Sidecars: found.sidecars(task), Timeout: c.timeout(task), Limits: policy.Limits,
		WorkspaceBytes: policy.WorkspaceBytes, OutputBytes: policy.OutputBytes, Env: environment.Environ(c.Env), Attempt: 1, Egress: c.Egress,
	}, nil
}

// Requests yields, in the pack's order, the request that the harness would get for each task or each of its
// steps, with an empty Dest. An error ends the sequence.
func Requests(ctx context.Context, plan Plan, site Site) iter.Seq2[harness.Request, error] {
	return func(yield func(harness.Request, error) bool) {
		c := config{plan, site}
		found, err := c.resolve(ctx)
		if err != nil {
			yield(harness.Request{}, err)
			return
		}
		for task, err := range c.rows() {
			var r harness.Request
			if err == nil {
				task, err = found.inImage(task)
			}
			if err != nil {
				yield(r, err)
				return
			}
			for _, s := range task.Steps() {
				if r, err = c.request(s, found); !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// policy returns the limits and permissions under which attempts of a task are made.
func (c config) policy(task *compiler.Task) record.Policy {
	env, v := task.Environment(), c.Tester.Verification
	p := record.Policy{
		Limits:         c.limits(env),
		WorkspaceBytes: cmp.Or(c.Tester.Runtime.Limits.WorkspaceBytes, max(env.Resources.Disk, defaultWorkspaceBytes)),
		OutputBytes:    cmp.Or(c.Tester.Runtime.Limits.OutputBytes, defaultOutputBytes),
		TimeoutSeconds: c.timeout(task).Seconds(),
		DenyCommands:   v.DenyCommands, AllowDangerous: !v.DisallowDangerousCommands, AfterTimeout: *cmp.Or(v.AfterTimeout, &env.VerifyAfterTimeout), Degraded: c.Degraded,
		Isolation:    max(c.Isolation, runtime.Isolation(env.Isolation)),
		Capabilities: env.Capabilities, AllowSeccomp: c.Tester.Runtime.AllowSeccomp, AllowNetlink: c.Tester.Runtime.AllowNetlink,
	}
	if effort := v.Contrast; effort != string(contrast.Full) {
		p.Contrast = effort
	}
	if judged := task.Family().Judged; c.Judge != nil && judged != nil && judged(task) {
		p.Judge = c.Judge.String()
	}
	fetches := slices.ContainsFunc(task.Steps(), func(s *compiler.Task) bool { return s.Checker().Network })
	if domains := v.AllowedDomains; domains != nil && fetches {
		for _, d := range *domains {
			p.CheckerDomains = append(p.CheckerDomains, d.String())
		}
	}
	if !env.NetworkNone {
		for _, d := range c.Tester.Harness.Config.AllowedDomains {
			p.Domains = append(p.Domains, d.String())
		}
		p.Transparent = c.Egress.Transparent
	}
	return p
}

// timeout returns the lower of the task's and the tester file's time limits, or defaultTimeout.
func (c config) timeout(task *compiler.Task) time.Duration {
	own, most := task.Environment().Timeout, c.Tester.Harness.Config.Timeout
	return min(cmp.Or(own, most, defaultTimeout), cmp.Or(most, own, defaultTimeout))
}

// limits returns the task's limits, else the tester file's or the defaults, none above the tester file's.
func (p Plan) limits(env environment.Environment) runtime.Limits {
	most := p.Tester.Runtime.Limits // a limit of 0 is not set
	l := runtime.Limits{Memory: env.Resources.Memory, CPUs: env.Resources.CPUs, Pids: env.Resources.Pids, ShmBytes: env.Resources.Shm}
	l = l.Over(runtime.Limits{Memory: most.Memory, CPUs: most.CPUs, Pids: most.Pids}).Over(runtime.DefaultLimits())
	l.Memory = min(l.Memory, cmp.Or(most.Memory, l.Memory))
	l.CPUs = min(l.CPUs, cmp.Or(most.CPUs, l.CPUs))
	l.Pids = min(l.Pids, cmp.Or(most.Pids, l.Pids))
	l.ShmBytes = min(l.ShmBytes, l.Memory) // it counts as memory, which a degraded host does not bound
	return l
}

// need returns what an attempt takes: one sandbox of the harness or the verifier at a time, or both if the task keeps
// processes, the oracle that a split check has beside its driver, and what is kept of the candidate.
func (c config) need(task *compiler.Task) admission.Need {
	n := c.sandboxNeed(task)
	if task.Environment().KeepProcesses {
		n = n.Plus(n)
	}
	if task.Split() != nil || task.Verification() != nil {
		oracle := runtime.DefaultLimits()
		n = n.Plus(c.inMemory(admission.Need{Memory: oracle.Memory, Pids: oracle.Pids, Disk: oracle.LayerBytes}))
	}
	if task.Family().CandidateKind == compiler.CandidateWorkspace {
		n.Disk += c.policy(task).WorkspaceBytes
	}
	n.Memory += c.networkMemory()
	return n
}

// sandboxNeed returns what one sandbox of the harness or of a verification takes, with its sidecars. It has a volume as
// large as a workspace. Its layer may grow as large, unless the candidate is a text or code.
func (c config) sandboxNeed(task *compiler.Task) admission.Need {
	policy, sandboxes := c.policy(task), int64(1+len(task.Environment().Sidecars))
	limits, disk := policy.Limits, policy.WorkspaceBytes
	if kind := task.Family().CandidateKind; kind == compiler.CandidateWorkspace || kind == compiler.CandidatePatch {
		disk *= 2
	}
	return c.inMemory(admission.Need{Memory: sandboxes * limits.Memory, Pids: sandboxes * limits.Pids, Disk: disk + sandboxes*limits.LayerBytes})
}

// inMemory adds the memory of volumes and layers on hosts that cannot limit disk space. What is kept of a candidate is on
// the disk.
func (c config) inMemory(n admission.Need) admission.Need {
	if slices.Contains(c.Degraded, "disk") {
		n.Memory += n.Disk
	}
	return n
}

// networkMemory returns the most bytes that the network access of one attempt takes outside its sandboxes.
func (c config) networkMemory() (n int64) {
	if c.networked() {
		n += c.Egress.Limits.SandboxBytes()
	}
	if r := c.producer().Relay; r != nil {
		n += r.Limits.SandboxBytes()
	}
	return n
}

// networked reports whether a harness or a checker of this run may reach anything, or the run has a judge.
func (c config) networked() bool {
	checkers := c.Tester.Verification.AllowedDomains
	return c.producer().Relay != nil || len(c.Egress.Domains) > 0 || c.Judge != nil || checkers != nil && len(*checkers) > 0
}
