/* One change by itself: may it be done, going by the policy and by what is on the host? */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/plan.h"
#include "base/cleanup.h"

void plan_say(struct decision *d, enum apply_verdict v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(d->reason, sizeof(d->reason), fmt, ap);
	va_end(ap);
	d->verdict = v;
}

/* What stands at @path on the host: 1, 0 when nothing can be done about it and @d says why. */
static int look(struct plan *p, struct decision *d, const char *path, struct ident *ret)
{
	struct stat st;
	int r = below_stat(p->root, path, &st);

	*ret = (struct ident){0};
	if (r == 0)
		ident_of(&st, ret);
	switch (-r) {
	case 0:
	case ENOENT:
	case ENOTDIR:
		return 1;
	case ELOOP:
		plan_say(d, APPLY_CONFLICT, "a symbolic link stands on the way to it on the host");
		return 0;
	case EXDEV:
		plan_say(d, APPLY_REFUSED, "it lies on another file system than the directory");
		return 0;
	default:
		plan_say(d, APPLY_REFUSED, "%s", err_text(r));
		return 0;
	}
}

/* Is it what the change is based on? *ret_at: until when nothing below it was touched by others. */
static bool based_on(const struct plan *p, const struct decision *d, const char *place,
		     struct timespec *ret_at)
{
	const struct known_state *known = known_find(p->known, place);
	const struct ident *is = &d->is, *seen = &d->c->hidden;
	bool dir = is->there && S_ISDIR(is->mode), yes;

	*ret_at = (struct timespec){0};
	yes = seen->there == is->there &&
	      (!is->there || (dir ? ident_is(seen, is) : ident_same(seen, is)));
	/* A rename alone takes whatever bytes it has by now along. */
	if (d->c->kind == 'R' && !d->copied && seen->there && is->there)
		yes = seen->dev == is->dev && seen->ino == is->ino &&
		      (seen->mode & S_IFMT) == (is->mode & S_IFMT);
	if (yes)
		*ret_at = d->c->hidden_at;
	if (!known_same(known, is))
		return yes;
	if (ident_before(ret_at, &known->at))
		*ret_at = known->at;
	return true;
}

static void drifted(struct plan *p, struct decision *d, const char *what)
{
	d->forced = p->j->force;
	if (!d->forced)
		plan_say(d, APPLY_CONFLICT, "%s", what);
}

static int set_place(struct decision *d, char *place)
{
	free(d->place_buf);
	d->place = d->place_buf = place;
	return 0;
}

/* ---- what is there ---- */

/* @d->is, which goes or is replaced. */
static int judge_old(struct plan *p, struct decision *d)
{
	struct timespec at;

	if (!d->is.there) {
		if (d->c->kind == 'D')
			plan_say(d, APPLY_NOTHING, "it is gone from the host already");
		else
			plan_say(d, APPLY_CONFLICT, "it was removed on the host");
		return 0;
	}
	if (!based_on(p, d, d->place, &at))
		drifted(p, d,
			d->c->hidden.there
				? "it was changed on the host since the sandbox saw it"
				: "it was made on the host, and the sandbox has not seen it");
	if (d->verdict != APPLY_DO || !S_ISDIR(d->is.mode) || d->c->kind == 'R')
		return 0;
	return plan_below(p, d, &at);
}

static int judge_gone(struct plan *p, struct decision *d)
{
	char *place = strdup(d->c->kind == 'R' ? d->c->old : d->c->path);
	int r;

	if (!place)
		return -ENOMEM;
	(void)set_place(d, place);
	r = plan_gate(p, d, place, GATE_GO, S_ISDIR(d->c->mode));
	if (r == 1)
		r = look(p, d, place, &d->is);
	return r == 1 ? judge_old(p, d) : r;
}

/* ---- what is new ---- */

static bool can_be_made(struct decision *d)
{
	if (S_ISSOCK(d->c->mode))
		plan_say(d, APPLY_REFUSED, "a socket is of use to nobody on the host");
	else if ((S_ISCHR(d->c->mode) || S_ISBLK(d->c->mode)) && geteuid() != 0)
		plan_say(d, APPLY_REFUSED, "only root can make a device");
	return d->verdict == APPLY_DO;
}

/* Is nothing at @place, which has nothing, because a run has left it so? */
static bool left_free(const struct plan *p, const struct decision *d, const char *place)
{
	cleanup_free char *above = plan_parent(place);
	const struct known_state *known = above ? known_find(p->known, above) : NULL;
	struct ident dir = {0};
	struct stat st;

	if (above && below_stat(p->root, above, &st) == 0)
		ident_of(&st, &dir);
	if (!known_same(known, &dir))
		dir = (struct ident){0};
	return known_absent(p->known, place, &dir, &d->c->hidden_at);
}

/* The place that @d's path will be at has to be free. */
static int judge_free(struct plan *p, struct decision *d, bool may_be_known)
{
	struct decision *in;
	struct ident is;
	char *place;
	int r = plan_place(p, d->c->path, &place, &in);

	if (r < 0 || !place)
		return r;
	r = look(p, d, place, &is);
	if (r == 1 && is.there && !plan_old(p, place))
		plan_say(d, APPLY_CONFLICT, "the host has something of that name by now");
	if (r == 1 && may_be_known && !is.there && d->c->hidden.there && !plan_old(p, place) &&
	    !left_free(p, d, place))
		drifted(p, d, "what it replaces was removed on the host");
	free(place);
	return r < 0 ? r : 0;
}

static int judge_new(struct plan *p, struct decision *d)
{
	int r = plan_gate(p, d, d->c->path, GATE_MAKE, S_ISDIR(d->c->mode));

	return r == 1 && can_be_made(d) ? judge_free(p, d, true) : r < 0 ? r : 0;
}

static int judge_renamed(struct plan *p, struct decision *d)
{
	int r = judge_gone(p, d);

	if (r == 0 && d->verdict == APPLY_DO)
		r = plan_gate(p, d, d->c->path, GATE_MAKE, S_ISDIR(d->c->mode));
	if (r == 1)
		r = plan_gate_rename(p, d);
	return r == 1 ? judge_free(p, d, false) : r < 0 ? r : 0;
}

/* ---- what changes ---- */

static void judge_attributes(struct plan *p, struct decision *d)
{
	const struct known_state *known = known_find(p->known, d->place);
	const struct ident *seen = &d->c->hidden;
	struct timespec at;
	bool same = based_on(p, d, d->place, &at);

	/* Other bytes do not matter to a mode. */
	if (!same && seen->there && seen->dev == d->is.dev && seen->ino == d->is.ino &&
	    seen->mode == d->is.mode && !(d->c->what & APPLY_XATTRS)) {
		same = true;
		if (!S_ISDIR(d->is.mode)) /* its time is that of the bytes */
			d->c->what &= ~(uint32_t)APPLY_TIMES;
	}
	if (S_ISDIR(d->is.mode) && d->c->what == APPLY_TIMES) {
		/* Where others have made names in it, its time is theirs. */
		if (!ident_same(seen, &d->is) &&
		    !(known_same(known, &d->is) && !ident_before(&known->at, &d->is.ctime)))
			plan_say(d, APPLY_NOTHING, "%s", "");
		return;
	}
	if (S_ISDIR(d->is.mode) && seen->there && seen->mode != d->is.mode &&
	    !known_same(known, &d->is))
		same = false;
	/* Of the same bytes, from somewhere else by now, the time is theirs. */
	if (!same && d->c->what == APPLY_TIMES) {
		plan_say(d, APPLY_NOTHING, "%s", "");
		return;
	}
	/* The directory itself has no name that could have been taken over. */
	if (!same && *d->c->path)
		drifted(p, d, "its attributes were changed on the host since the sandbox saw it");
}

/* As the tree shows it to us; what it has stored may be another user's number for the same. */
static bool owner_differs(struct plan *p, struct decision *d)
{
	struct stat st;

	if (below_stat(p->j->tree, d->c->path, &st) == 0 && st.st_uid == d->is.uid &&
	    st.st_gid == d->is.gid)
		d->c->what &= ~(uint32_t)APPLY_OWNER;
	return d->c->what & APPLY_OWNER;
}

static int judge_changed(struct plan *p, struct decision *d)
{
	struct decision *in;
	struct timespec at;
	char *place;
	int r = plan_gate(p, d, d->c->path, GATE_CHANGE, S_ISDIR(d->c->mode));

	if (r == 1)
		r = plan_place(p, d->c->path, &place, &in) < 0 ? -ENOMEM : 1;
	if (r != 1)
		return r;
	if (!place) {
		plan_say(d, APPLY_CONFLICT, "its directory is another one on the host");
		return 0;
	}
	(void)set_place(d, place);
	r = look(p, d, place, &d->is);
	if (r != 1)
		return r;
	if (d->is.there && !owner_differs(p, d) && !d->c->what) {
		plan_say(d, APPLY_NOTHING, "%s", "");
		return 0;
	}
	if (!d->is.there)
		plan_say(d, APPLY_CONFLICT, "it was removed on the host");
	else if (d->c->kind == 'T')
		return can_be_made(d) ? judge_old(p, d) : 0;
	else if ((d->is.mode & S_IFMT) != (d->c->mode & S_IFMT))
		plan_say(d, APPLY_CONFLICT, "it is something else on the host by now");
	else if (!(d->c->what & APPLY_CONTENT) || S_ISDIR(d->c->mode))
		judge_attributes(p, d);
	else if (!based_on(p, d, place, &at))
		drifted(p, d,
			d->c->hidden.there
				? "it was changed on the host since the sandbox saw it"
				: "it was made on the host, and the sandbox has not seen it");
	return 0;
}

int plan_judge(struct plan *p, struct decision *d)
{
	switch (d->c->kind) {
	case 'D':
		return judge_gone(p, d);
	case 'A':
		return judge_new(p, d);
	case 'M':
	case 'T':
		return judge_changed(p, d);
	case 'R':
		return judge_renamed(p, d);
	default:
		plan_say(d, APPLY_REFUSED, "a kind of change that this rattan does not know");
		return 0;
	}
}
