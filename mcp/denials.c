#include "mcp/denials.h"

#include <string.h>

#include "base/cleanup.h"
#include "mcp/files/text.h"

static int put_files(struct buf *out, const struct client_denials *d)
{
	size_t n = d->n < DENIALS_SHOWN ? d->n : DENIALS_SHOWN;
	int r = 0;

	for (size_t i = 0; !r && i < n; i++) {
		r = buf_printf(out, "[refused by the sandbox's policy: %s ", d->v[i].op);
		if (!r)
			r = text_put_name(out, d->v[i].path, strlen(d->v[i].path));
		if (!r)
			r = buf_printf(out, " (%s)]\n", d->v[i].why);
	}
	if (!r && d->n > n)
		r = buf_printf(out, "[and %zu%s more]\n", d->n - n,
			       d->n == DENIALS_KEPT ? " or" : "");
	return r;
}

static int put_one(struct buf *out, const struct run_asked *a)
{
	cleanup_buf struct buf remedy = {0};
	int r = net_verdict_remedy(a->verdict, a->host, &remedy);

	if (!r)
		r = buf_printf(out, "[%s: ",
			       net_verdict_refused(a->verdict)
				       ? "refused by the rules on the network"
				       : "not reached");
	/* Letters, digits, '-', '_', '.' and ':' alone, whoever wrote it. */
	if (!r && a->host[0])
		r = buf_printf(out, "%s:%u (", a->host, a->port);
	if (!r)
		r = buf_printf(out, "%s%s%s%s]\n", net_verdict_text(a->verdict),
			       remedy.len ? "; " : "", remedy.len ? (const char *)remedy.data : "",
			       a->host[0] ? ")" : "");
	return r;
}

static int put_network(struct buf *out, const struct changes *ch)
{
	size_t shown = 0, left = 0;
	int r = 0;

	for (size_t i = 0; !r && i < ch->nasked; i++) {
		if (ch->asked[i].verdict == NET_OK)
			continue;
		if (shown == DENIALS_SHOWN) {
			left++;
			continue;
		}
		shown++;
		r = put_one(out, &ch->asked[i]);
	}
	if (!r && left)
		r = buf_printf(out, "[and %zu more on the network]\n", left);
	return !r && ch->shut && *ch->shut ? buf_printf(out, "[%s]\n", ch->shut) : r;
}

int denials_put(struct buf *out, const struct job_info *in, const struct changes *ch)
{
	int r;

	if (in->ended && in->result.code == 0)
		return 0;
	r = put_files(out, &ch->denied);
	return r ? r : put_network(out, ch);
}

/* Takes @o, which may be NULL. */
static bool add_to(cJSON *a, cJSON *o, bool whole)
{
	if (o && whole && cJSON_AddItemToArray(a, o))
		return true;
	cJSON_Delete(o);
	return false;
}

static bool file_json(cJSON *a, const struct ctl_denial *d)
{
	cJSON *o = cJSON_CreateObject();

	return add_to(a, o,
		      o && cJSON_AddStringToObject(o, "path", d->path) &&
			      cJSON_AddStringToObject(o, "operation", d->op) &&
			      cJSON_AddStringToObject(o, "rule", d->why));
}

static bool domain_json(cJSON *a, const struct run_asked *x)
{
	cleanup_buf struct buf remedy = {0};
	cJSON *o = cJSON_CreateObject();

	return add_to(a, o,
		      net_verdict_remedy(x->verdict, x->host, &remedy) == 0 && o &&
			      cJSON_AddStringToObject(o, "domain", x->host) &&
			      cJSON_AddNumberToObject(o, "port", x->port) &&
			      cJSON_AddStringToObject(o, "operation", "connect") &&
			      cJSON_AddStringToObject(o, "rule", net_verdict_text(x->verdict)) &&
			      cJSON_AddStringToObject(
				      o, "remedy", remedy.len ? (const char *)remedy.data : "") &&
			      cJSON_AddNumberToObject(o, "count", (double)x->count));
}

static bool asked_json(cJSON *a, const struct run_asked *x)
{
	cJSON *o = cJSON_CreateObject();

	return add_to(a, o,
		      o && cJSON_AddStringToObject(o, "domain", x->host) &&
			      cJSON_AddNumberToObject(o, "port", x->port) &&
			      cJSON_AddBoolToObject(o, "allowed", x->verdict == NET_OK) &&
			      cJSON_AddStringToObject(o, "verdict", net_verdict_text(x->verdict)) &&
			      cJSON_AddNumberToObject(o, "count", (double)x->count));
}

static void denied_facts(cJSON *o, const struct changes *ch)
{
	double total = (double)ch->denied.total;
	cJSON *a = cJSON_CreateArray();
	bool going = a != NULL;

	for (size_t i = 0; going && i < ch->denied.n; i++)
		going = file_json(a, &ch->denied.v[i]);
	for (size_t i = 0; going && i < ch->nasked; i++) {
		if (!net_verdict_refused(ch->asked[i].verdict))
			continue;
		total += (double)ch->asked[i].count;
		going = domain_json(a, &ch->asked[i]);
	}
	if (total > 0) {
		(void)cJSON_AddNumberToObject(o, "denials_total", total);
		(void)cJSON_AddItemToObject(o, "denials", a);
	} else {
		cJSON_Delete(a);
	}
}

void denials_facts(cJSON *o, const struct changes *ch)
{
	cJSON *a;
	bool going;

	denied_facts(o, ch);
	if (!ch->asked_total)
		return;
	(void)cJSON_AddNumberToObject(o, "network_total", (double)ch->asked_total);
	a = cJSON_AddArrayToObject(o, "network");
	going = a != NULL;
	for (size_t i = 0; going && i < ch->nasked; i++)
		going = asked_json(a, &ch->asked[i]);
}
