/* What all parts of the model use. */
#include <stdarg.h>

#include "tests/unit/core/model/model.h"

uint32_t rnd(struct model *m, uint32_t n)
{
	m->rnd ^= m->rnd << 13;
	m->rnd ^= m->rnd >> 7;
	m->rnd ^= m->rnd << 17;
	return (uint32_t)(m->rnd >> 32) % n;
}

void rnd_step(struct model *m, uint64_t step)
{
	uint64_t v = m->seed + step * UINT64_C(0x9e3779b97f4a7c15);

	v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
	m->rnd = (v ^ v >> 31) | 1;
}

void say(struct model *m, const char *fmt, ...)
{
	char *line = m->trace[m->ntrace++ % TRACE_MAX];
	char text[sizeof(m->last)]; /* an argument may be m->last */
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *c = text; *c; c++)
		if (*c & 0x80)
			*c = '?';
	memcpy(m->last, text, sizeof(text));
	snprintf(line, sizeof(m->trace[0]), "%llu %.230s", (unsigned long long)m->step, m->last);
	if (m->verbose && m->step > 0)
		printf("#   %s\n", line);
}

void bad(struct model *m, const char *what)
{
	if (m->failed++ < 20)
		printf("# step %llu: %s (%s)\n", (unsigned long long)m->step, what, m->last);
	fflush(stdout);
}

static void count_op(struct model *m, const char *op, bool success)
{
	for (size_t i = 0; i < ARRAY_SIZE(m->ops); i++) {
		if (!m->ops[i].name)
			m->ops[i].name = op;
		if (!strcmp(m->ops[i].name, op)) {
			m->ops[i].n[success]++;
			return;
		}
	}
}

bool agree(struct model *m, const char *op, int model, int ours)
{
	char text[128];

	if (model == ours) {
		count_op(m, op, model == 0);
		return model == 0;
	}
	snprintf(text, sizeof(text), "%s: model %s, ours %s", op, model ? err_text(model) : "ok",
		 ours ? err_text(ours) : "ok");
	bad(m, text);
	return false;
}

void model_open(struct model *m, const char *dir)
{
	if (m->dirfd >= 0)
		(void)close(m->dirfd);
	if (dir != m->dir)
		snprintf(m->dir, sizeof(m->dir), "%s", dir);
	m->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (m->dirfd < 0)
		tap_fatal("open %s", dir);
}
