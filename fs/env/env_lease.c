/* Who uses an environment right now. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/io.h"
#include "fs/env/env_internal.h"

#define LEASES_MAX 1024
/* How long who provisioned under a former daemon has, when the command has ended, to say whether it stays. */
#define VERDICT_MS 30000

/* One connection, one lease: a second call tells the process of the command that was announced by the first. */
static bool lease_again_locked(struct env *e, const void *owner, struct env_lease *l)
{
	for (struct env_lease *had = e->leases; had; had = had->next) {
		if (had->owner != owner)
			continue;
		if (had->pidfd >= 0)
			(void)close(had->pidfd);
		free(had->what);
		had->what = l->what;
		had->pidfd = l->pidfd;
		had->brief = l->brief;
		free(l);
		if (!had->brief)
			env_keep_lease_locked(e, had);
		return true;
	}
	return false;
}

int env_lease_locked(struct env *e, const void *owner, const struct env_want *want, int pidfd,
		     struct diag *diag)
{
	struct env_lease *l = calloc(1, sizeof(*l));

	if (l)
		l->what = strndup(want->what ? want->what : "a command", 200);
	if (!l || !l->what) {
		free(l);
		return -ENOMEM;
	}
	l->owner = owner;
	l->pidfd = pidfd;
	l->brief = want->brief;
	if (lease_again_locked(e, owner, l))
		return 0;
	if (e->nleases >= LEASES_MAX) {
		free(l->what);
		free(l);
		return diag_set(diag, -EMFILE, "%d commands run already", LEASES_MAX);
	}
	l->next = e->leases;
	e->leases = l;
	e->nleases++;
	l->id = ++e->next_id;
	/* Under another daemon a brief one's mount ends with another policy, and its holder asks anew. */
	if (!l->brief)
		env_keep_lease_locked(e, l);
	return 0;
}

int env_lease(struct env *e, const void *owner, const char *what, int pidfd, struct diag *diag)
{
	const struct env_want want = {.what = what};

	ENV_LOCK(e);
	return env_lease_locked(e, owner, &want, pidfd, diag);
}

static void lease_end_locked(struct env *e, struct env_lease **p)
{
	struct env_lease *l = *p;

	*p = l->next;
	if (!l->brief && (l->pidfd < 0 || !env_process_gone(l->pidfd)))
		e->unsure = true;
	keeper_drop(&e->link, KEEP_LEASE, l->id);
	if (l->pidfd >= 0)
		(void)close(l->pidfd);
	free(l->what);
	free(l);
	e->nleases--;
}

/* Of a connection to a former daemon. */
static bool lease_over_locked(const struct env *e, struct env_lease *l)
{
	if (l->pidfd < 0)
		return io_now_ms() > l->until;
	if (!env_process_gone(l->pidfd))
		return false;
	if (!e->provisioning)
		return true;
	if (!l->until)
		l->until = io_now_ms() + VERDICT_MS;
	return io_now_ms() > l->until;
}

bool env_prune(struct env *e)
{
	bool left = false;

	/* Whoever holds it for long is about to change all of this anyway. */
	if (pthread_mutex_trylock(&e->lock) != 0)
		return true;
	for (struct env_lease **p = &e->leases; *p;) {
		struct env_lease *l = *p;

		if (!l->owner && lease_over_locked(e, l)) {
			lease_end_locked(e, p);
			continue;
		}
		left |= !l->owner;
		p = &l->next;
	}
	if (e->provisioning && !e->leases)
		env_provision_over_locked(e);
	left |= env_binds_prune_locked(e);
	(void)pthread_mutex_unlock(&e->lock);
	return left;
}

void env_unlease_locked(struct env *e, const void *owner)
{
	for (struct env_lease **p = &e->leases; *p;) {
		struct env_lease *l = *p;

		if (l->owner != owner) {
			p = &l->next;
			continue;
		}
		lease_end_locked(e, p);
	}
}

void env_unlease(struct env *e, const void *owner)
{
	ENV_LOCK(e);
	env_unlease_locked(e, owner);
	if (e->provisioning && !e->leases)
		env_provision_over_locked(e);
}

unsigned env_leases(struct env *e)
{
	return atomic_load(&e->nleases);
}

/*
 * A file is dirty in the kernel only while something maps it. In a mount that none but our commands reach, whoever maps
 * holds a lease; without one there is nothing to push. To push all the same would drop what the kernel caches of each
 * file that was ever written, after every call.
 */
int env_push_locked(struct env *e)
{
	bool mapped = e->host_dir || e->unsure || env_commands_locked(e) > 0 ||
		      !session_unmapped_is_clean(e->cur.se);
	int r = mapped ? session_push_dirty(e->cur.se) : 0;

	if (r == 0)
		e->unsure = false;
	return r;
}

/* How many there are beside @owner's, and some of them in @text. */
static unsigned list_locked(const struct env *e, const void *owner, bool brief, char *text,
			    size_t size)
{
	unsigned others = 0;
	size_t n = 0;

	text[0] = 0;
	for (const struct env_lease *l = e->leases; l; l = l->next) {
		int k;

		if ((l->owner == owner && owner) || (l->brief && !brief))
			continue;
		/* Whose connection is still there will give it up in a moment: no move waits for that, a policy does. */
		if ((!l->owner || !brief) && l->pidfd >= 0 && env_process_gone(l->pidfd))
			continue;
		others++;
		k = snprintf(text + n, size - n, "%s%.*s", others > 1 ? ", " : "",
			     (int)(strcspn(l->what, "\n") < 60 ? strcspn(l->what, "\n") : 60),
			     l->what);
		n = k < 0 || n + (size_t)k >= size ? size - 1 : n + (size_t)k;
	}
	return others;
}

int env_check_idle_locked(struct env *e, const void *owner, struct diag *diag)
{
	char text[300];
	unsigned others = list_locked(e, owner, false, text, sizeof(text));

	if (!others)
		return 0;
	return diag_set(diag, -EBUSY,
			"%u command%s run%s in \"%s\" (%s); wait, or force it to end them", others,
			others > 1 ? "s" : "", others > 1 ? "" : "s", e->rec.name, text);
}

int env_check_leases_locked(struct env *e, struct diag *diag)
{
	char text[300];

	if (!list_locked(e, NULL, true, text, sizeof(text)))
		return 0;
	return diag_set(
		diag, -EBUSY,
		"environment \"%s\" is in use under another policy (%s), and has one at a time; "
		"wait until that has ended, or use another environment (-e)",
		e->rec.name, text);
}

unsigned env_commands_locked(const struct env *e)
{
	unsigned n = 0;

	for (const struct env_lease *l = e->leases; l; l = l->next)
		n += !l->brief;
	return n;
}

int env_check_idle(struct env *e, const void *owner, struct diag *diag)
{
	ENV_LOCK(e);
	return env_check_idle_locked(e, owner, diag);
}

/* SIGKILL, and a moment for it to be done; a lease stays its connection's until that gives it up. */
void env_kill_leases_locked(struct env *e, const void *owner)
{
	long long end = io_now_ms() + 2000;

	for (const struct env_lease *l = e->leases; l; l = l->next)
		if ((l->owner != owner || !owner) && l->pidfd >= 0)
			(void)pidfd_send_signal(l->pidfd, SIGKILL, NULL, 0);
	for (const struct env_lease *l = e->leases; l; l = l->next) {
		struct pollfd p = {.fd = l->pidfd, .events = POLLIN};
		long long left = end - io_now_ms();

		if ((l->owner != owner || !owner) && l->pidfd >= 0)
			(void)poll(&p, 1, left > 0 ? (int)left : 0);
	}
}
