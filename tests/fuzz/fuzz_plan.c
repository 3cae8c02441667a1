/* stage3's plan decoder: whatever the bytes, nothing outside of them is read, and what decodes is
 * within its bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "stage3/plan.h"
#include "tests/fuzz/fuzz.h"

static void check(int holds)
{
	if (!holds)
		abort();
}

bool fuzz_one(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	char **room = NULL;
	struct plan plan;
	bool taken = false;
	size_t need, i;

	if (!copy)
		return false;
	if (size > 0)
		memcpy(copy, data, size);
	if (plan_pointers(copy, size, &need) == 0) {
		room = calloc(need, sizeof(*room));
		if (room && plan_decode(copy, size, room, need, &plan) == 0) {
			taken = true;
			check(plan.argc >= 1 && !plan.argv[plan.argc] && !plan.envp[plan.envc]);
			check(plan.cwd[0] == '/');
			for (i = 0; i < plan.argc; i++)
				check(strlen(plan.argv[i]) < size);
			for (i = 0; i < plan.nrules; i++)
				check(plan.rule_paths[i][0] == '/');
			for (i = 0; i < plan.nfilters; i++)
				check((const uint8_t *)plan.filter[i] + plan.filter_len[i] * 8 <=
				      copy + size);
		}
	}
	free(room);
	free(copy);
	return taken;
}
