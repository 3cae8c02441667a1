/* skopeo, and what its words mean. */
#include "cli/skopeo.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/program.h"

#define ARGS_MAX 16

/* ---- names ---- */

static bool host_ok(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)p[i]) && !strchr(".-:[]", p[i]))
			return false;
	return n && isalnum((unsigned char)p[*p == '[']);
}

/* Components of small letters and digits, with dots, dashes and underscores between them. */
static bool name_ok(const char *p, size_t n)
{
	bool word = false;

	for (size_t i = 0; i < n; i++) {
		bool in = islower((unsigned char)p[i]) || isdigit((unsigned char)p[i]);

		if (!in && (!p[i] || !strchr("._-/", p[i]) || (p[i] == '/' && !word)))
			return false;
		if (!in && !word && i && p[i - 1] != '-' && p[i - 1] != '_')
			return false;
		word = in;
	}
	return word;
}

static bool ref_ok(const char *p)
{
	size_t n = strlen(p);

	if (!strncmp(p, "@sha256:", 8))
		return n == 8 + 64 && strspn(p + 8, "0123456789abcdef") == 64;
	if (*p != ':' || n < 2 || n > 129 || strchr(".-", p[1]))
		return false;
	for (size_t i = 1; i < n; i++)
		if (!isalnum((unsigned char)p[i]) && !strchr("._-", p[i]))
			return false;
	return true;
}

static bool is_local(const char *host)
{
	return !strcmp(host, "localhost") || !strncmp(host, "localhost:", 10) ||
	       !strncmp(host, "127.", 4) || !strncmp(host, "[::1]", 5);
}

int registry_name_parse(const char *text, struct registry_name *ret, struct diag *diag)
{
	const char *host = strncmp(text, "oci:", 4) ? NULL : text + 4, *slash, *end;
	size_t hn, nn;

	*ret = (struct registry_name){0};
	slash = host ? strchr(host, '/') : NULL;
	hn = slash ? (size_t)(slash - host) : 0;
	if (!slash)
		return diag_set(diag, -EINVAL,
				"'%s' is no image in a registry: oci:REGISTRY/NAME[:TAG], as "
				"in oci:registry.example.com/team/tools:v1",
				text);
	end = slash + 1 + strcspn(slash + 1, ":@");
	nn = (size_t)(end - slash - 1);
	if (hn >= sizeof(ret->host) || !host_ok(host, hn) ||
	    (!memchr(host, '.', hn) && !memchr(host, ':', hn) &&
	     (hn != 9 || memcmp(host, "localhost", 9) != 0)))
		return diag_set(
			diag, -EINVAL,
			"'%.*s' is no registry: give a host as in registry.example.com/NAME, "
			"with :PORT if it has one",
			hn < 200 ? (int)hn : 200, host);
	if (nn >= sizeof(ret->name) || !name_ok(slash + 1, nn))
		return diag_set(diag, -EINVAL,
				"'%.*s' is no name of an image: small letters and digits, with "
				". _ - and / between them",
				nn < 200 ? (int)nn : 200, slash + 1);
	if (*end && !ref_ok(end))
		return diag_set(diag, -EINVAL,
				"'%s' is no tag and no digest: :TAG is 1 to 128 of A-Z a-z 0-9 "
				". _ -, a digest @sha256: and 64 hexadecimal digits",
				end);
	memcpy(ret->host, host, hn);
	memcpy(ret->name, slash + 1, nn);
	(void)snprintf(ret->ref, sizeof(ret->ref), "%s", *end ? end : ":latest");
	ret->local = is_local(ret->host);
	return 0;
}

/* ---- its words ---- */

static bool says(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (strcasestr(text, *words))
			return true;
	return false;
}

/* The last message: logfmt, time="..." level=fatal msg="...". */
static void message_of(char *text, char ret[static 400])
{
	char *msg = NULL, *p = text;
	size_t n = 0;

	while ((p = strstr(p, "msg=\"")))
		msg = p += 5;
	for (p = msg ? msg : text; *p && n < 399 && !(msg && *p == '"'); p++) {
		if (*p == '\\' && p[1])
			p++;
		ret[n++] = *p == '\n' ? ' ' : *p;
	}
	ret[n] = 0;
}

static const char *const no_host[] = {
	"connection refused",     "no such host",     "no route to host",          "i/o timeout",
	"network is unreachable", "connection reset", "temporary failure in name", NULL};
static const char *const no_tls[] = {"http response to https", "x509:", "tls:", NULL};
static const char *const no_right[] = {"unauthorized", "denied", "authentication required",
				       "forbidden",    "403",    NULL};
static const char *const no_image[] = {"manifest unknown", "name unknown", "not found",
				       "repository name not known", NULL};
static const char *const no_disk[] = {"no space left", NULL};

static int explain(const struct skopeo *k, const char *doing, struct buf *said, struct diag *diag)
{
	const struct registry_name *a = k->at;
	char text[400];

	if (buf_put(said, "", 1) < 0)
		return -ENOMEM;
	message_of((char *)said->data, text);
	if (says(text, no_disk))
		return diag_set(
			diag, -ENOSPC,
			"the disk is full: TMPDIR can name another place for the image (%s)", text);
	if (says(text, no_tls))
		return diag_set(
			diag, -EPROTO,
			"the registry %s cannot be spoken to safely; --insecure does without "
			"(%s)",
			a->host, text);
	if (says(text, no_host))
		return diag_set(diag, -EHOSTUNREACH,
				"the registry %s does not answer; look at its name and port (%s)",
				a->host, text);
	if (says(text, no_right))
		return diag_set(
			diag, -EACCES,
			"the registry %s refuses %s%s; skopeo login %s says who you are (%s)",
			a->host, a->name, a->ref, a->host, text);
	if (says(text, no_image))
		return diag_set(diag, -ENOENT, "there is no image %s%s at %s (%s)", a->name, a->ref,
				a->host, text);
	return diag_set(diag, -EIO, "cannot %s %s/%s%s: %s", doing, a->host, a->name, a->ref,
			*text ? text : "skopeo ended without a word");
}

static int skopeo(const struct skopeo *k, const char *doing, const char *const *argv,
		  struct buf *out, struct diag *diag)
{
	cleanup_buf struct buf said = {0};
	int status = 0, r = program_run(argv, out, &said, &status);

	if (r == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0; /* also when it was told to stop too late */
	if (transfer_stopped())
		return diag_set(diag, -ECANCELED, "stopped");
	if (r < 0)
		return diag_set(diag, r, "cannot run skopeo: %s", err_text(r));
	if (program_missing(status))
		return diag_set(diag, -ENOPKG,
				"there is no skopeo on this machine, which talks to registries: "
				"install the package skopeo");
	if (WIFSIGNALED(status))
		return diag_set(diag, -EIO, "skopeo was ended by signal %d", WTERMSIG(status));
	return explain(k, doing, &said, diag);
}

/* Where nobody has said what signatures an image needs, it needs none. */
static bool has_policy(void)
{
	const char *home = getenv("HOME");
	cleanup_free char *mine = NULL;

	if (home && asprintf(&mine, "%s/.config/containers/policy.json", home) < 0)
		mine = NULL;
	return (mine && access(mine, F_OK) == 0) ||
	       access("/etc/containers/policy.json", F_OK) == 0;
}

struct words {
	const char *v[ARGS_MAX + 1];
	size_t n;
};

static void word(struct words *w, const char *s)
{
	if (s && w->n < ARGS_MAX)
		w->v[w->n++] = s;
}

static void begin(struct words *w, const char *command)
{
	*w = (struct words){0};
	word(w, "skopeo");
	word(w, has_policy() ? NULL : "--insecure-policy");
	word(w, command);
}

static const char *no_verify(const struct skopeo *k, const char *option)
{
	return k->insecure || k->at->local ? option : NULL;
}

int skopeo_manifest(const struct skopeo *k, const char *digest, struct buf *out, struct diag *diag)
{
	cleanup_free char *from = NULL;
	struct words w;

	if (asprintf(&from, "docker://%s/%s%s%s", k->at->host, k->at->name, digest ? "@" : "",
		     digest ? digest : k->at->ref) < 0) {
		from = NULL;
		return -ENOMEM;
	}
	begin(&w, "inspect");
	word(&w, "--raw");
	word(&w, no_verify(k, "--tls-verify=false"));
	word(&w, from);
	return skopeo(k, "look at", w.v, out, diag);
}

static int copy(const struct skopeo *k, const char *layout, bool push, struct diag *diag)
{
	cleanup_free char *here = NULL, *there = NULL;
	struct words w;

	if (asprintf(&here, "oci:%s:latest", layout) < 0)
		here = NULL;
	if (asprintf(&there, "docker://%s/%s%s", k->at->host, k->at->name, k->at->ref) < 0)
		there = NULL;
	if (!here || !there)
		return -ENOMEM;
	begin(&w, "copy");
	word(&w, no_verify(k, push ? "--dest-tls-verify=false" : "--src-tls-verify=false"));
	/* as it is: another packing would be another layer */
	word(&w, push ? "--preserve-digests" : NULL);
	word(&w, push ? here : there);
	word(&w, push ? there : here);
	return skopeo(k, push ? "send" : "fetch", w.v, NULL, diag);
}

int skopeo_pull(const struct skopeo *k, const char *layout, struct diag *diag)
{
	return copy(k, layout, false, diag);
}

int skopeo_push(const struct skopeo *k, const char *layout, struct diag *diag)
{
	return copy(k, layout, true, diag);
}
