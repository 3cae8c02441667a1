/* Enters the kernel by the doors for other programs than those of x86-64: int 0x80 with the numbers of i386, and
 * the numbers of x32. Static and without libc, so that nothing else is asked. Exit 0: it was let in. */
static long call64(long nr, long a)
{
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a) : "rcx", "r11", "memory");
	return r;
}

static long call32(long nr)
{
	long r;

	__asm__ volatile("int $0x80" : "=a"(r) : "a"(nr) : "r8", "r9", "r10", "r11", "memory");
	return r;
}

void start_c(const long *stack);

void start_c(const long *stack)
{
	const char *how = stack[0] > 1 ? (const char *)stack[2] : "";
	/* getpid is 20 there; and 39 with the mark of x32 */
	long pid = how[0] == 'i' ? call32(20) : call64(0x40000000 | 39, 0);

	(void)call64(60, pid > 0 ? 0 : 1);
}

__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call start_c\n");
