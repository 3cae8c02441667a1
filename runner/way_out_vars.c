/* The variables by which programs find a proxy. There is no standard: each family of them has its own. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "runner/way_out.h"
#include "stage3/stage3_abi.h"

enum value {
	HTTP,
	SOCKS,
	DIRECT, /* who is reached without the proxy */
	ONE,
	LOCAL,
	ALLOWED,
	DENIED,
};

static const struct {
	const char *name;
	enum value value;
} vars[] = {
	{"HTTP_PROXY", HTTP},
	{"HTTPS_PROXY", HTTP},
	{"http_proxy", HTTP},
	{"https_proxy", HTTP},
	{"YARN_HTTP_PROXY", HTTP},
	{"YARN_HTTPS_PROXY", HTTP},
	{"npm_config_http_proxy", HTTP},
	{"npm_config_https_proxy", HTTP},
	{"npm_config_proxy", HTTP},
	{"NPM_CONFIG_HTTP_PROXY", HTTP},
	{"NPM_CONFIG_HTTPS_PROXY", HTTP},
	{"NPM_CONFIG_PROXY", HTTP},
	{"BUNDLE_HTTP_PROXY", HTTP},
	{"BUNDLE_HTTPS_PROXY", HTTP},
	{"PIP_PROXY", HTTP},
	{"DOCKER_HTTP_PROXY", HTTP},
	{"DOCKER_HTTPS_PROXY", HTTP},
	{"WS_PROXY", HTTP},
	{"WSS_PROXY", HTTP},
	{"ws_proxy", HTTP},
	{"wss_proxy", HTTP},
	{"ALL_PROXY", SOCKS},
	{"all_proxy", SOCKS},
	{"FTP_PROXY", SOCKS},
	{"ftp_proxy", SOCKS},
	{"NO_PROXY", DIRECT},
	{"no_proxy", DIRECT},
	{"npm_config_noproxy", DIRECT},
	{"RATTAN_MANAGED_NETWORK", ONE},
	{"RATTAN_MANAGED_NETWORK_PROXY_ACTIVE", ONE},
	{"RATTAN_ALLOWED_DOMAINS", ALLOWED},
	{"RATTAN_DENIED_DOMAINS", DENIED},
	{"ALLOW_LOCAL_BINDING", LOCAL},
	/* what clients of managed profiles know a network by that is not the host's */
	{"CODEX_SANDBOX_NETWORK_DISABLED", ONE},
};

/* The sandbox's own loopback, and what is nowhere to be reached: a refusal at once, not one by the proxy. */
static const char direct[] =
	"localhost,127.0.0.1,127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,"
	"169.254.0.0/16,fc00::/7,fe80::/10";

#define LIST_MAX 100000u /* a longer variable the kernel does not take (MAX_ARG_STRLEN) */

/* Whole patterns; the rest of a list that is too long is "...". */
static int list_put(const struct net_list *l, struct buf *ret)
{
	cleanup_buf struct buf b = {0};
	int r = net_list_text(l, &b);
	size_t n = b.len;

	if (r < 0 || n <= LIST_MAX)
		return r < 0 ? r : buf_put(ret, b.data, n);
	for (n = LIST_MAX; b.data[n - 1] != ',';)
		n--; /* patterns are short */
	r = buf_put(ret, b.data, n);
	return r < 0 ? r : buf_puts(ret, "...");
}

static int value_put(const struct net_rules *rules, enum value v, struct buf *ret)
{
	switch (v) {
	case HTTP:
		return buf_printf(ret, "http://127.0.0.1:%d", STAGE3_PORT_HTTP);
	case SOCKS:
		return buf_printf(ret, "socks5h://127.0.0.1:%d", STAGE3_PORT_SOCKS);
	case DIRECT:
		/* Where the host's loopback is open it is reached as everything else is. */
		return buf_puts(ret, rules->local ? "" : direct);
	case ONE:
		return buf_puts(ret, "1");
	case LOCAL:
		return buf_puts(ret, rules->local ? "1" : "0");
	case ALLOWED:
		return list_put(&rules->allow, ret);
	case DENIED:
		return list_put(&rules->deny, ret);
	}
	return -EINVAL;
}

int way_out_vars(const struct net_rules *rules, struct buf *ret, uint32_t *ret_count)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(vars); i++) {
		r = buf_printf(ret, "%s=", vars[i].name);
		if (r == 0)
			r = value_put(rules, vars[i].value, ret);
		if (r == 0)
			r = buf_put(ret, "", 1);
	}
	*ret_count = ARRAY_SIZE(vars);
	return r;
}

bool way_out_names(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(vars); i++)
		if (strlen(vars[i].name) == n && !strncmp(vars[i].name, name, n))
			return true;
	return false;
}
