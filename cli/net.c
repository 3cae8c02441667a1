/* The rules on a network: the settings' and the command line's. */
#include "base/buf.h"
#include "cli/cli.h"

static int add_all(struct net_rules *r, const struct cli_list *l,
		   int (*add)(struct net_rules *r, const char *pattern, struct diag *diag),
		   const char *option, struct diag *diag)
{
	struct diag d = {0};
	int e = 0;

	for (size_t i = 0; e == 0 && i < l->n; i++)
		e = add(r, l->v[i], &d);
	return e < 0 ? diag_set(diag, e, "--%s: %s", option, d.text[0] ? d.text : err_text(e)) : 0;
}

int cli_net_rules(const struct cli_net_opts *o, const struct cli_config *c, struct diag *diag,
		  struct net_rules *ret)
{
	int r = net_rules_join(ret, &c->net);

	if (r == 0)
		r = add_all(ret, &o->allow, net_allow, "allow-domain", diag);
	if (r == 0)
		r = add_all(ret, &o->deny, net_deny, "deny-domain", diag);
	ret->local = ret->local || o->local;
	return r;
}

void cli_net_tell_shut(const struct net_rules *rules)
{
	cleanup_buf struct buf text = {0};

	if (rules && net_rules_shut(rules, &text) == 0 && text.len)
		fprintf(stderr, "rattan: %s\n", (const char *)text.data);
}
