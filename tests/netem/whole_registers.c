/* User-mode Linux sets a process's floating-point registers from a copy of 2696 bytes, and the kernel refuses all but
 * the whole state. On a CPU with AMX that is 11 KB, so nothing runs there up to Linux 6.12 ("ptrace set fp regs failed,
 * errno = 14"). Loaded before the C library, this fills up what is missing; the head of the copy says that nothing of it
 * is in use, so what it is does not matter.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static long (*next_ptrace)(int request, ...);
static unsigned char whole[1 << 16]; /* not on the stack: that of user-mode Linux is short */
static size_t size; /* of the whole state */

__attribute__((constructor)) static void find_next(void)
{
	next_ptrace = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
}

static long set_registers(int pid, void *kind, struct iovec *part)
{
	struct iovec all = {whole, sizeof(whole)};

	if (size == 0) {
		if (next_ptrace(PTRACE_GETREGSET, pid, kind, &all) != 0)
			return -1;
		size = all.iov_len;
	}
	all.iov_len = size;
	memcpy(whole, part->iov_base, part->iov_len < size ? part->iov_len : size);
	return next_ptrace(PTRACE_SETREGSET, pid, kind, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list words;

	va_start(words, request);
	int pid = va_arg(words, int);
	void *address = va_arg(words, void *), *data = va_arg(words, void *);
	va_end(words);
	if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE)
		return set_registers(pid, address, data);
	return next_ptrace(request, pid, address, data);
}
