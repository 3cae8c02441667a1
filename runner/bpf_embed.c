/*
 * Build tool: writes the filters of the default promises as a C source. libseccomp takes some
 * milliseconds to compile them, as long as starting the whole sandbox.
 */
#include <stdio.h>

#include "runner/bpf_gen.h"
#include "runner/promises.h"

static void emit(const char *name, const struct buf *b)
{
	size_t i;

	printf("const uint64_t %s[] = {", name);
	for (i = 0; i + 8 <= b->len; i += 8) {
		uint64_t v = 0;

		__builtin_memcpy(&v, b->data + i, sizeof(v));
		printf("%s0x%016llxull,", i % 32 ? " " : "\n\t", (unsigned long long)v);
	}
	printf("\n};\nconst size_t %s_count = sizeof(%s) / sizeof(%s[0]);\n", name, name, name);
}

int main(void)
{
	struct bpf_filters f = {0};
	int r;

	r = bpf_gen(PROMISES_DEFAULT, &f);
	if (r < 0) {
		fprintf(stderr, "cannot compile the default filters: %s\n", err_text(r));
		return 1;
	}
	printf("#include \"runner/bpf_default.h\"\n\n");
	emit("bpf_default_arguments", &f.arguments);
	emit("bpf_default_calls", &f.calls);
	bpf_filters_release(&f);
	return 0;
}
