#include "fs/env/mend.h"

#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "fs/env/env.h"

#define WAIT_MIN_MS 1500 /* a shorter life looks like one that never worked (fs/env/daemon.c) */
#define WAIT_MAX_MS 60000
#define FORGET_MS   600000
#define HURRY_MS    20
#define SOON_MS     10000 /* who waits for an answer is told to wait no longer than that */

void mend_init(struct mend *m, struct keeper_link *kept)
{
	struct keeper_item *x = kept ? keeper_find(kept, KEEP_MEND) : NULL;

	*m = (struct mend){.started_ms = io_now_ms()};
	if (x && x->len == sizeof(m->before))
		memcpy(&m->before, x->data, sizeof(m->before));
}

int mend_fd(const struct mend *m, const struct env *e)
{
	return m->broken ? -1 : env_broken_fd(e);
}

/* In a row with the ones before? */
static bool in_row(const struct mend *m, long long now)
{
	return m->before.times && now - m->before.when_ms <= FORGET_MS;
}

static long long wait_ms(const struct mend *m, long long now)
{
	long long wait = WAIT_MIN_MS;

	for (uint32_t i = 0; in_row(m, now) && i < m->before.times && wait < WAIT_MAX_MS; i++)
		wait *= 2;
	return wait < WAIT_MAX_MS ? wait : WAIT_MAX_MS;
}

void mend_broken(struct mend *m, struct env *e)
{
	long long now = io_now_ms();

	m->broken = true;
	if (!env_may_hand_over(e)) {
		m->hurry = !env_patience_end(e);
		log_error("the disk failed at the end of a transaction, and the store refuses "
			  "everything until it is opened again: end this mount and start it anew");
		return;
	}
	m->at = m->started_ms + wait_ms(m, now);
	if (m->at > now + SOON_MS)
		m->hurry = !env_patience_end(e);
	log_error("the disk failed at the end of a transaction, and the store has to be opened "
		  "again: another rattan-fs will do that");
}

int mend_wait(const struct mend *m, int most)
{
	long long left;

	if (m->hurry && most > HURRY_MS)
		most = HURRY_MS;
	left = m->at ? m->at - io_now_ms() : most;

	return left >= most ? most : left > 0 ? (int)left : 1;
}

bool mend_due(struct mend *m, struct env *e)
{
	long long now = io_now_ms();
	struct mend_note n = {.when_ms = now, .times = in_row(m, now) ? m->before.times + 1 : 1};

	if (m->hurry)
		m->hurry = !env_patience_end(e);
	if (!m->at || now < m->at)
		return false;
	m->at = 0;
	if (!env_may_hand_over(e)) {
		m->hurry = !env_patience_end(e);
		return false;
	}
	env_keep_mend(e, &n);
	return true;
}
