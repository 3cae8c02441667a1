/*
 * Provisioning: changes by root, which stay as a whole or not at all. The state before them is sealed and has a ref in the store,
 * so that whatever dies, and when, the next who serves the environment knows that they are half done.
 */
#include <stdio.h>

#include "base/log.h"
#include "fs/env/env_internal.h"

#define REF_MAX 160

static void ref_name(const struct env *e, char ret[static REF_MAX])
{
	(void)snprintf(ret, REF_MAX, "env/%s/provision", e->rec.name);
}

/* Whoever comes must not go on from what is half done, nor note it as the state to go back to. */
static int still(struct env *e, struct diag *diag)
{
	return diag_set(
		diag, -EBUSY,
		"packages are being installed in environment \"%s\"; wait until that has ended",
		e->rec.name);
}

int env_provision_begin_locked(struct env *e, struct diag *diag)
{
	char ref[REF_MAX];
	store_layer from;
	int r;

	ref_name(e, ref);
	r = e->provisioning ? 0 : store_ref_get(e->store, ref, &from);
	if (r == 0)
		return still(e, diag);
	if (r != -ENOENT)
		return r;
	r = env_checkpoint_locked(e, "before provisioning", diag);
	if (r < 0)
		return r;
	r = store_ref_set(e->store, ref, e->rec.head);
	if (r < 0)
		return diag_set(diag, r, "cannot note the state before provisioning: %s",
				err_text(r));
	e->provisioning = true;
	e->provision_from = e->rec.head;
	return 0;
}

static int forget(struct env *e)
{
	char ref[REF_MAX];
	int r;

	ref_name(e, ref);
	r = store_ref_del(e->store, ref);
	if (r == 0 || r == -ENOENT)
		e->provisioning = false;
	return r == -ENOENT ? 0 : r;
}

static int go_back(struct env *e, struct diag *diag)
{
	struct ovl_counts n = {0};
	struct diag why = {0};
	int r = env_ensure_locked(e, &why);

	if (r == 0)
		ovl_counts(e->cur.ovl, &n);
	if (r == 0 && (n.layer_changed || e->rec.head != e->provision_from))
		r = env_go_back_locked(e, e->provision_from, &why);
	if (r == 0)
		r = forget(e);
	return r < 0 ? diag_set(
			       diag, r,
			       "what was half provisioned in environment \"%s\" could not be taken back "
			       "yet: %s; the next command tries it again",
			       e->rec.name, why.text[0] ? why.text : err_text(r))
		     : 0;
}

int env_provision_settle_locked(struct env *e, struct diag *diag)
{
	if (!e->provisioning)
		return 0;
	return e->leases ? still(e, diag) : go_back(e, diag);
}

int env_provision_end_locked(struct env *e, struct diag *diag)
{
	if (!e->provisioning)
		return 0;
	env_kill_leases_locked(e, NULL);
	return go_back(e, diag);
}

void env_provision_over_locked(struct env *e)
{
	struct diag diag = {0};

	/* The ref stays when that fails: whoever comes next tries again, and is told. */
	if (e->provisioning && go_back(e, &diag) < 0)
		log_error("%s", diag.text);
}

int env_provision_found_locked(struct env *e, struct diag *diag)
{
	char ref[REF_MAX];
	int r;

	ref_name(e, ref);
	r = store_ref_get(e->store, ref, &e->provision_from);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	e->provisioning = true;
	return e->leases ? 0 : go_back(e, diag);
}

/* Its own lease, or one of a connection to the last daemon: there is no other while it lasts. */
static bool provisions(const struct env *e, const void *owner)
{
	for (const struct env_lease *l = e->provisioning ? e->leases : NULL; l; l = l->next)
		if (!l->owner || l->owner == owner)
			return true;
	return false;
}

static int taken_back(struct diag *diag)
{
	return diag_set(diag, -ENOENT, "what was provisioned has been taken back");
}

int env_provision_keep(struct env *e, const void *owner, struct diag *diag)
{
	int r;

	ENV_LOCK(e);
	if (!provisions(e, owner))
		return taken_back(diag);
	/* Before the ref goes: whatever dies from now on, all of it is there. */
	r = env_quiesce_locked(e);
	if (r == 0)
		r = forget(e);
	return r < 0 ? diag_set(diag, r, "what was provisioned cannot be kept: %s", err_text(r))
		     : 0;
}

int env_provision_drop(struct env *e, const void *owner, struct diag *diag)
{
	ENV_LOCK(e);
	return provisions(e, owner) ? go_back(e, diag) : taken_back(diag);
}
