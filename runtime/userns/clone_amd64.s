#include "textflag.h"

// func clone(flags uintptr) (pid int)
TEXT ·clone(SB), NOSPLIT, $0-16
	MOVQ flags+0(FP), DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVL $56, AX // SYS_clone
	SYSCALL
	TESTQ AX, AX
	JEQ child
	MOVQ AX, pid+8(FP)
	RET
child:
	MOVL $157, AX // SYS_prctl
	MOVL $1, DI // PR_SET_PDEATHSIG
	MOVL $9, SI // SIGKILL
	SYSCALL
idle:
	MOVL $34, AX // SYS_pause
	SYSCALL
	JMP idle
