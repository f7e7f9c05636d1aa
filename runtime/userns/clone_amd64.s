#include "textflag.h"

// func clone(flags uintptr, parent int) (pid int)
TEXT ·clone(SB), NOSPLIT, $0-24
	MOVQ flags+0(FP), DI
	MOVQ parent+8(FP), R12
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVL $56, AX // SYS_clone
	SYSCALL
	TESTQ AX, AX
	JEQ child
	MOVQ AX, pid+16(FP)
	RET
child:
	MOVL $157, AX // SYS_prctl
	MOVL $1, DI // PR_SET_PDEATHSIG
	MOVL $9, SI // SIGKILL
	SYSCALL
	MOVL $110, AX // SYS_getppid
	SYSCALL
	CMPQ AX, R12
	JNE exit // the parent ended before that
idle:
	MOVL $34, AX // SYS_pause
	SYSCALL
	JMP idle
exit:
	MOVL $60, AX // SYS_exit
	XORL DI, DI
	SYSCALL
	JMP exit
