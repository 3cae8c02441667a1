/* Lines of a unified diff, for a file or a terminal. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/diff_internal.h"

int diff_quote(struct buf *out, const char *label)
{
	const uint8_t *p = (const uint8_t *)label, *end = p + strlen(label);
	bool plain = !strpbrk(label, "\"\\");
	int r;

	for (size_t n; plain && p < end; p += n) {
		n = utf8_len(p, (size_t)(end - p));
		plain = n && utf8_shown(p, n);
		n = n ? n : 1;
	}
	if (plain)
		return buf_puts(out, label);
	r = buf_puts(out, "\"");
	for (p = (const uint8_t *)label; r == 0 && p < end; p++) {
		if (*p == '"' || *p == '\\')
			r = buf_printf(out, "\\%c", *p);
		else if (*p < 0x20 || *p >= 0x7f)
			r = buf_printf(out, "\\%03o", *p);
		else
			r = buf_put(out, p, 1);
	}
	return r < 0 ? r : buf_puts(out, "\"");
}

static enum cli_colour colour_of(const char *line)
{
	if (!strncmp(line, "--- ", 4) || !strncmp(line, "+++ ", 4))
		return CLI_BOLD;
	return *line == '-'   ? CLI_RED
	       : *line == '+' ? CLI_GREEN
	       : *line == '@' ? CLI_CYAN
			      : CLI_PLAIN;
}

void diff_put_line(const struct cli_page *pg, const char *text, size_t n)
{
	const enum cli_colour c = colour_of(text);

	if (!pg->tty) {
		(void)fwrite(text, 1, n, stdout);
		(void)putchar('\n');
		return;
	}
	if (c != CLI_PLAIN)
		cli_colour(pg, c);
	cli_put_text(stdout, text, n);
	if (c != CLI_PLAIN)
		cli_colour(pg, CLI_PLAIN);
	(void)putchar('\n');
}

int diff_put_head(const struct cli_page *pg, const char *mark, const char *label)
{
	cleanup_buf struct buf b = {0};
	int r = buf_puts(&b, mark);

	if (r == 0)
		r = diff_quote(&b, label);
	if (r == 0)
		diff_put_line(pg, (const char *)b.data, b.len);
	return r;
}
