#include "stage3/note.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stage3/stage3_abi.h"

/*
 * No line before the command's own, whose numbers are in its errors; nothing that it, or a shell that it starts, could find but
 * the trap, which one of its own replaces. What the command has set holds in the trap as well: what -x and -u would say, a DEBUG
 * trap, a function in the place of a builtin, -e, and a limit on the size of files change neither the output nor the exit code.
 * The loop is an assignment that leaves PIPESTATUS alone.
 */
static const char script[] =
	"unset BASH_ENV\n"
	"exec 3<&-\n"
	"trap '{ for REPLY in \"${PIPESTATUS[*]}\"; do builtin trap \"\" XFSZ; "
	"builtin printf \"%s|%s\" \"$REPLY\" \"${PWD-}\"; done; } 2>/dev/null >|" STAGE3_NOTE_FILE
	" || :' EXIT\n";

int note_prepare(void)
{
	int fd = memfd_create("note", 0), r = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, script, sizeof(script) - 1) != (ssize_t)sizeof(script) - 1)
		r = -EIO;
	if (r == 0 && fd != STAGE3_FD_PLAN) {
		r = dup2(fd, STAGE3_FD_PLAN) < 0 ? -errno : 0;
		(void)close(fd);
	}
	return r;
}

void note_forget(char **envp)
{
	char **to = envp;

	for (; *envp; envp++) {
		if (strcmp(*envp, STAGE3_NOTE_ENV) != 0)
			*to++ = *envp;
	}
	*to = NULL;
}

/* ---- what is left running ---- */

struct dirent64 {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

/* Does the process @pid run, and what is it called? Not what has ended and waits for its parent. */
static int runs(const char *pid, char name[static 16])
{
	char path[48], stat[256], *open_at, *close_at;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, stat, sizeof(stat) - 1);
	if (fd >= 0)
		(void)close(fd);
	if (n <= 0)
		return 0;
	stat[n] = 0;
	open_at = strchr(stat, '(');
	close_at = strrchr(stat, ')');
	if (!open_at || !close_at || close_at < open_at || strlen(close_at) < 3 ||
	    strchr("ZX", close_at[2]))
		return 0;
	*close_at = 0;
	(void)snprintf(name, 16, "%.15s", open_at + 1);
	return 1;
}

static void count_left(struct stage3_note *n)
{
	_Alignas(struct dirent64) char block[4096];
	int fd;
	long got;

	/* Most often nobody is. */
	if (kill(-1, 0) < 0)
		return;
	fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while (fd >= 0 && (got = syscall(SYS_getdents64, fd, block, sizeof(block))) > 0) {
		for (long at = 0; at < got;) {
			const struct dirent64 *d = (const void *)(block + at);
			char name[16];

			at += d->len;
			if (!isdigit((unsigned char)d->name[0]) || !strcmp(d->name, "1") ||
			    !runs(d->name, name))
				continue;
			if (!n->left++)
				memcpy(n->name, name, sizeof(name));
		}
	}
	if (fd >= 0)
		(void)close(fd);
}

/* ---- what bash has noted ---- */

/* A regular file on a tmpfs of the sandbox's own: a command can put nothing there that it could not read anyway. */
static void read_note(struct stage3_note *n)
{
	int fd = open(STAGE3_NOTE_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t len;

	if (fd < 0)
		return;
	/* What is longer is not told, and what is no file is not ours. */
	len = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read(fd, n->text, sizeof(n->text)) : -1;
	(void)close(fd);
	if (len <= 0 || (size_t)len == sizeof(n->text))
		return;
	n->len = (uint32_t)len;
}

void note_send(bool noted)
{
	struct stage3_note n = {.kind = STAGE3_MSG_NOTE};

	count_left(&n);
	if (noted)
		read_note(&n);
	if (n.left || n.len)
		(void)!write(STAGE3_FD_STATUS, &n, offsetof(struct stage3_note, text) + n.len);
}
