#include "stage3/root_who.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "stage3/root_abi.h"
#include "stage3/root_path.h"

#define KERNEL_GROUPS_MAX 65536

static const struct root_answer to_kernel = {.mine = false};

static struct root_answer say(int error, int64_t value)
{
	return (struct root_answer){.mine = true, .error = error, .value = error ? 0 : value};
}

/* ---- what is noted ---- */

static size_t size_of(const struct root_who *w)
{
	return offsetof(struct root_who, groups) + w->ngroups * sizeof(w->groups[0]);
}

static bool have_room(struct root_people *p)
{
	unsigned room = p->room ? 2 * p->room : 16;
	struct root_who **v;

	if (p->n == ROOT_WHO_MAX)
		return false;
	if (p->n < p->room)
		return true;
	v = realloc(p->v, room * sizeof(struct root_who *));
	if (!v)
		return false;
	p->v = v;
	p->room = room;
	return true;
}

/* Its number; negative: there is no room. None is ever given back: a process that carries it may still come. */
static int number_of(struct root_people *p, const struct root_who *w)
{
	struct root_who *own;

	for (unsigned i = 0; i < p->n; i++)
		if (p->v[i]->ngroups == w->ngroups && !memcmp(p->v[i], w, size_of(w)))
			return (int)i;
	own = have_room(p) ? malloc(size_of(w)) : NULL; /* without the groups that it has not */
	if (!own)
		return -1;
	memcpy(own, w, size_of(w));
	p->v[p->n] = own;
	return (int)p->n++;
}

bool root_who_of(const struct root_caller *c, struct root_who *ret)
{
	const struct root_people *p = c->people;
	struct rlimit lim;
	uint32_t n;

	memset(ret, 0, sizeof(*ret));
	if (prlimit((pid_t)c->pid, ROOT_WHO_LIMIT, NULL, &lim) < 0 || !root_who_carried(&lim))
		return false;
	/* Whoever sets the limit itself may be anybody, which is no more than it was. */
	n = root_who_number(lim.rlim_cur);
	if (n >= p->n)
		return false;
	memcpy(ret, p->v[n], size_of(p->v[n]));
	return true;
}

/* Its thread waits in the call, so that its number is nobody else's, unless it was killed just now. Where it cannot be carried, in a
 * limit that the host has set, all stay root and are none the wiser. */
static int note(const struct root_caller *c, const struct root_who *w)
{
	struct rlimit lim;
	int n = number_of(c->people, w);

	if (n < 0)
		return -EAGAIN;
	if (prlimit((pid_t)c->pid, ROOT_WHO_LIMIT, NULL, &lim) < 0)
		return 0;
	lim.rlim_cur = root_who_pack(w->uid[ROOT_FS], w->gid[ROOT_FS], (uint32_t)n);
	if (root_who_carried(&lim))
		(void)prlimit((pid_t)c->pid, ROOT_WHO_LIMIT, &lim, NULL);
	return 0;
}

bool root_who_in(const struct root_who *w, uint32_t gid)
{
	if (gid == w->gid[ROOT_FS])
		return true;
	for (uint32_t i = 0; i < w->ngroups; i++)
		if (w->groups[i] == gid)
			return true;
	return false;
}

/* ---- the rules: setuid(2), setreuid(2), setresuid(2), setfsuid(2), and the same of groups ---- */

static bool is_one(const uint32_t ids[static ROOT_IDS], uint32_t id)
{
	return id == ids[ROOT_REAL] || id == ids[ROOT_EFFECTIVE] || id == ids[ROOT_SAVED];
}

static bool may_be(const uint32_t ids[static ROOT_IDS], bool root, uint32_t id)
{
	return root || id == ROOT_KEEP || is_one(ids, id);
}

static bool carried(uint32_t id)
{
	return id <= ROOT_ID_MAX || id == ROOT_KEEP;
}

static int set_one(uint32_t ids[static ROOT_IDS], bool root, uint32_t id)
{
	if (id > ROOT_ID_MAX)
		return -EINVAL;
	if (!root && id != ids[ROOT_REAL] && id != ids[ROOT_SAVED])
		return -EPERM;
	if (root)
		ids[ROOT_REAL] = ids[ROOT_SAVED] = id;
	ids[ROOT_EFFECTIVE] = ids[ROOT_FS] = id;
	return 0;
}

static int set_two(uint32_t ids[static ROOT_IDS], bool root, uint32_t real, uint32_t effective)
{
	uint32_t was = ids[ROOT_REAL];

	if (!carried(real) || !carried(effective))
		return -EINVAL;
	if (!root && real != ROOT_KEEP && real != was && real != ids[ROOT_EFFECTIVE])
		return -EPERM;
	if (!may_be(ids, root, effective))
		return -EPERM;
	if (real != ROOT_KEEP)
		ids[ROOT_REAL] = real;
	if (effective != ROOT_KEEP)
		ids[ROOT_EFFECTIVE] = effective;
	if (real != ROOT_KEEP || (effective != ROOT_KEEP && effective != was))
		ids[ROOT_SAVED] = ids[ROOT_EFFECTIVE];
	ids[ROOT_FS] = ids[ROOT_EFFECTIVE];
	return 0;
}

static int set_three(uint32_t ids[static ROOT_IDS], bool root, const uint64_t a[static 3])
{
	uint32_t want[3] = {(uint32_t)a[0], (uint32_t)a[1], (uint32_t)a[2]};

	for (int i = 0; i < 3; i++)
		if (!carried(want[i]))
			return -EINVAL;
	for (int i = 0; i < 3; i++)
		if (!may_be(ids, root, want[i]))
			return -EPERM;
	for (int i = 0; i < 3; i++)
		if (want[i] != ROOT_KEEP)
			ids[ROOT_REAL + i] = want[i];
	ids[ROOT_FS] = ids[ROOT_EFFECTIVE];
	return 0;
}

/* It knows no errors, and tells what was. */
static uint32_t set_fs(uint32_t ids[static ROOT_IDS], bool root, uint32_t id)
{
	uint32_t was = ids[ROOT_FS];

	if (id <= ROOT_ID_MAX && (root || is_one(ids, id) || id == was))
		ids[ROOT_FS] = id;
	return was;
}

/* ---- groups ---- */

static int take_groups(struct root_who *w, uint32_t pid, uint64_t n, uint64_t at)
{
	struct iovec to = {.iov_base = w->groups}, from = {.iov_base = (void *)(uintptr_t)at};
	ssize_t got;

	n &= UINT32_MAX;
	if (n > KERNEL_GROUPS_MAX)
		return -EINVAL;
	if (n > ROOT_GROUPS_MAX)
		return -ENOMEM;
	to.iov_len = from.iov_len = (size_t)n * sizeof(w->groups[0]);
	w->ngroups = (uint32_t)n;
	got = n ? process_vm_readv((pid_t)pid, &to, 1, &from, 1, 0) : 0;
	if (got == (ssize_t)to.iov_len)
		return 0;
	/* Into some nobody may look: they have none then. */
	w->ngroups = 0;
	return got < 0 && errno == EPERM ? 0 : -EFAULT;
}

static bool give(uint32_t pid, uint64_t at, const void *p, size_t n)
{
	struct iovec from = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
	struct iovec to = {.iov_base = (void *)(uintptr_t)at, .iov_len = n};

	return process_vm_writev((pid_t)pid, &from, 1, &to, 1, 0) == (ssize_t)n;
}

static struct root_answer tell_groups(const struct root_who *w, uint32_t pid, uint64_t n,
				      uint64_t at)
{
	int room = (int)n;

	if (room < 0 || (room && (uint32_t)room < w->ngroups))
		return say(-EINVAL, 0);
	/* What cannot be written to, the kernel finds out. */
	if (room && !give(pid, at, w->groups, w->ngroups * sizeof(w->groups[0])))
		return to_kernel;
	return say(0, w->ngroups);
}

static struct root_answer tell_three(const uint32_t ids[static ROOT_IDS], uint32_t pid,
				     const uint64_t at[static 3])
{
	for (int i = 0; i < 3; i++)
		if (!give(pid, at[i], &ids[ROOT_REAL + i], sizeof(ids[0])))
			return to_kernel;
	return say(0, 0);
}

/* ---- all of them ---- */

static struct root_answer tell(const struct seccomp_data *c, uint32_t pid, const struct root_who *w)
{
	const uint64_t *a = (const uint64_t *)c->args;

	switch (c->nr) {
	case SYS_getuid:
		return say(0, w->uid[ROOT_REAL]);
	case SYS_geteuid:
		return say(0, w->uid[ROOT_EFFECTIVE]);
	case SYS_getgid:
		return say(0, w->gid[ROOT_REAL]);
	case SYS_getegid:
		return say(0, w->gid[ROOT_EFFECTIVE]);
	case SYS_getresuid:
		return tell_three(w->uid, pid, a);
	case SYS_getresgid:
		return tell_three(w->gid, pid, a);
	default:
		return tell_groups(w, pid, a[0], a[1]);
	}
}

static bool asks(int nr)
{
	switch (nr) {
	case SYS_getuid:
	case SYS_geteuid:
	case SYS_getgid:
	case SYS_getegid:
	case SYS_getresuid:
	case SYS_getresgid:
	case SYS_getgroups:
		return true;
	default:
		return false;
	}
}

/* What the call makes of @w; @value: what it returns where it goes well. */
static int change(const struct seccomp_data *c, uint32_t pid, struct root_who *w, int64_t *value)
{
	const uint64_t *a = (const uint64_t *)c->args;
	bool root = w->uid[ROOT_EFFECTIVE] == 0, groups = root || w->keeps;

	switch (c->nr) {
	case SYS_setuid:
		return set_one(w->uid, root, (uint32_t)a[0]);
	case SYS_setgid:
		return set_one(w->gid, groups, (uint32_t)a[0]);
	case SYS_setreuid:
		return set_two(w->uid, root, (uint32_t)a[0], (uint32_t)a[1]);
	case SYS_setregid:
		return set_two(w->gid, groups, (uint32_t)a[0], (uint32_t)a[1]);
	case SYS_setresuid:
		return set_three(w->uid, root, a);
	case SYS_setresgid:
		return set_three(w->gid, groups, a);
	case SYS_setfsuid:
		*value = set_fs(w->uid, root, (uint32_t)a[0]);
		return 0;
	case SYS_setfsgid:
		*value = set_fs(w->gid, groups, (uint32_t)a[0]);
		return 0;
	default:
		return groups ? take_groups(w, pid, a[0], a[1]) : -EPERM;
	}
}

/* The kernel does the same of its own. */
static struct root_answer keep(const struct root_caller *caller, uint32_t keeps)
{
	struct root_who w;

	(void)root_who_of(caller, &w);
	if (w.keeps != keeps) {
		w.keeps = keeps;
		(void)note(caller, &w);
	}
	return to_kernel;
}

struct root_answer root_who_call(const struct seccomp_data *c, const struct root_caller *caller)
{
	struct root_who w;
	int64_t value = 0;
	bool other;
	int r;

	if (c->nr == SYS_prctl)
		return keep(caller, c->args[1] == 1);
	other = root_who_of(caller, &w);
	if (asks(c->nr))
		return other ? tell(c, caller->pid, &w) : to_kernel;
	r = change(c, caller->pid, &w, &value);
	if (r == 0)
		r = note(caller, &w);
	return say(r, value);
}
