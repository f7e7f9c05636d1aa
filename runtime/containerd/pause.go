package containerd

import (
	"encoding/binary"
	"fmt"
)

// pauseDest is the path, inside a persistent sandbox, of the program of its first process.
const pauseDest = "/.sbench/pause"

// pauseProgram returns the program of a persistent sandbox's first process: a static one
// that ignores SIGCHLD, so that the kernel reaps orphans by itself (sigaction(2),
// "SA_NOCLDWAIT"), and then sleeps forever. It brings nothing into the sandbox that a
// candidate could use, needs nothing from the image, and occupies one page.
//
// The code is position independent; the 32 zero-extended bytes after it are the
// kernel's struct sigaction with the handler SIG_IGN, which is 1.
func pauseProgram(arch string) ([]byte, error) {
	var machine uint16
	var code []byte
	switch arch {
	case "amd64":
		machine = 62 // EM_X86_64
		code = []byte{
			0xb8, 13, 0, 0, 0, // mov eax, SYS_rt_sigaction
			0xbf, 17, 0, 0, 0, // mov edi, SIGCHLD
			0x48, 0x8d, 0x35, 19, 0, 0, 0, // lea rsi, [rip+19]: the structure
			0x31, 0xd2, // xor edx, edx
			0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8: the size of a signal set
			0x0f, 0x05, // syscall
			0xb8, 34, 0, 0, 0, // mov eax, SYS_pause
			0x0f, 0x05, // syscall
			0xeb, 0xf7, // jmp to SYS_pause
		}
	case "arm64":
		machine = 183 // EM_AARCH64
		for _, instruction := range []uint32{
			0xd2800220, // mov x0, SIGCHLD
			0x100001a1, // adr x1, +52: the structure
			0xd2800002, // mov x2, 0
			0xd2800103, // mov x3, 8
			0xd28010c8, // mov x8, SYS_rt_sigaction
			0xd4000001, // svc 0
			0xd2800000, // mov x0, 0
			0xd2800001, // mov x1, 0
			0xd2800002, // mov x2, 0
			0xd2800003, // mov x3, 0
			0xd2800104, // mov x4, 8
			0xd2800928, // mov x8, SYS_ppoll
			0xd4000001, // svc 0
			0x17fffff9, // b to the first mov x0, 0
		} {
			code = binary.LittleEndian.AppendUint32(code, instruction)
		}
	default:
		return nil, fmt.Errorf("no idle program for architecture %q", arch)
	}
	ignore := make([]byte, 32)
	ignore[0] = 1
	return elf(machine, append(code, ignore...)), nil
}

// elf returns a 64-bit little-endian executable with code in one segment that can be read
// and executed (elf(5)).
func elf(machine uint16, code []byte) []byte {
	const header, segment, base = 64, 56, 0x400000
	le := binary.LittleEndian
	b := append([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, make([]byte, 9)...)
	b = le.AppendUint16(b, 2) // ET_EXEC
	b = le.AppendUint16(b, machine)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, base+header+segment) // entry
	b = le.AppendUint64(b, header)              // program headers
	b = le.AppendUint64(b, 0)                   // no sections
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{header, segment, 1, 64, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	size := uint64(header + segment + len(code))
	b = le.AppendUint32(b, 1) // PT_LOAD
	b = le.AppendUint32(b, 5) // read, execute
	for _, v := range []uint64{0, base, base, size, size, 0x1000} {
		b = le.AppendUint64(b, v)
	}
	return append(b, code...)
}

// trueProgram returns a program that exits at once with status 0; see pauseProgram.
func trueProgram(arch string) ([]byte, error) {
	switch arch {
	case "amd64":
		return elf(62, []byte{
			0x31, 0xff, // xor edi, edi
			0xb8, 231, 0, 0, 0, // mov eax, SYS_exit_group
			0x0f, 0x05, // syscall
		}), nil
	case "arm64":
		var code []byte
		for _, instruction := range []uint32{
			0xd2800000, // mov x0, 0
			0xd2800bc8, // mov x8, SYS_exit_group
			0xd4000001, // svc 0
		} {
			code = binary.LittleEndian.AppendUint32(code, instruction)
		}
		return elf(183, code), nil
	}
	return nil, fmt.Errorf("no program for architecture %q", arch)
}
