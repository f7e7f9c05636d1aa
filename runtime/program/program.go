// Package program has the programs that sbench itself brings into sandboxes. They need
// nothing from an image, and bring nothing into a sandbox that a candidate could use.
package program

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"runtime"
)

// Pause returns the program of a persistent sandbox's first process. It ignores SIGCHLD, so that
// the kernel itself reaps orphans (sigaction(2), "SA_NOCLDWAIT"), and sleeps forever. It is
// static and occupies one page.
func Pause() ([]byte, error) {
	// The code is position independent; the 32 zero-extended bytes after it are the kernel's
	// struct sigaction with the handler SIG_IGN, which is 1.
	ignore := make([]byte, 32)
	ignore[0] = 1
	switch runtime.GOARCH {
	case "amd64":
		return executable(elf.EM_X86_64, append([]byte{
			0xb8, 13, 0, 0, 0, // mov eax, SYS_rt_sigaction
			0xbf, 17, 0, 0, 0, // mov edi, SIGCHLD
			0x48, 0x8d, 0x35, 19, 0, 0, 0, // lea rsi, [rip+19]: the structure
			0x31, 0xd2, // xor edx, edx
			0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8: the size of a signal set
			0x0f, 0x05, // syscall
			0xb8, 34, 0, 0, 0, // mov eax, SYS_pause
			0x0f, 0x05, // syscall
			0xeb, 0xf7, // jmp to SYS_pause
		}, ignore...))
	case "arm64":
		return executable(elf.EM_AARCH64, append(words(
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
		), ignore...))
	}
	return nil, fmt.Errorf("no program for architecture %q", runtime.GOARCH)
}

func words(instructions ...uint32) (code []byte) {
	for _, i := range instructions {
		code = binary.LittleEndian.AppendUint32(code, i)
	}
	return code
}

// executable returns a 64-bit executable with the code in one readable and executable segment (elf(5)).
func executable(machine elf.Machine, code []byte) ([]byte, error) {
	const header, segment, base = 64, 56, 0x400000
	size := uint64(header + segment + len(code))
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
			Entry: base + header + segment, Phoff: header, Ehsize: header, Phentsize: segment, Phnum: 1, Shentsize: 64,
		},
		elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
			Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: 0x1000,
		},
		code,
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
