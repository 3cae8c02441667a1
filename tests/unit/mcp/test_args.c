#include "mcp/tool.h"
#include "tests/lib/tap.h"

static struct tool_result out;

static const char *error_of(void)
{
	return out.is_error && out.text.data ? (const char *)out.text.data : "";
}

static void reset(void)
{
	buf_release(&out.text);
	out = (struct tool_result){0};
}

static cJSON *json(const char *text)
{
	cJSON *v = cJSON_Parse(text);

	if (!v)
		tap_fatal("test JSON: %s", text);
	return v;
}

static void test_int(void)
{
	static const struct {
		const char *args;
		int r;
		int64_t v;
	} cases[] = {
		{"{\"n\":5}", 1, 5},
		{"{\"n\":5.0}", 1, 5},
		{"{\"n\":\"5\"}", 1, 5},
		{"{\"n\":\"-3\"}", 1, -3},
		{"{\"n\":null}", 0, 99},
		{"{}", 0, 99},
		{"{\"N\":5}", 0, 99},
		{"{\"m\":7}", 1, 7},
		{"{\"n\":7,\"m\":7}", 1, 7},
		{"{\"n\":7,\"m\":8}", -EINVAL, 99},
		{"{\"n\":5.5}", -EINVAL, 99},
		{"{\"n\":\"5x\"}", -EINVAL, 99},
		{"{\"n\":\"\"}", -EINVAL, 99},
		{"{\"n\":\" 5\"}", -EINVAL, 99},
		{"{\"n\":true}", -EINVAL, 99},
		{"{\"n\":[5]}", -EINVAL, 99},
		{"{\"n\":101}", -EINVAL, 99},
		{"{\"n\":-11}", -EINVAL, 99},
		{"{\"n\":1e300}", -EINVAL, 99},
		{"{\"n\":\"inf\"}", -EINVAL, 99},
		{"{\"n\":\"nan\"}", -EINVAL, 99},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cJSON *a = json(cases[i].args);
		int64_t v = 99;
		int r = arg_int(a, ARG("n", "m"), -10, 100, &out, &v);

		ok(r == cases[i].r && v == cases[i].v && out.is_error == (r < 0) &&
			   (r >= 0 || !strncmp(error_of(), "error: ", 7)),
		   "int %s", cases[i].args);
		reset();
		cJSON_Delete(a);
	}
}

static void test_others(void)
{
	static const char *const words[] = {"one", "two", NULL};
	cJSON *a =
		json("{\"s\":\"x\",\"b\":\"true\",\"e\":\"two\",\"o\":{},\"l\":[1],\"f\":\"0.5\"}");
	const char *s = NULL;
	const cJSON *v = NULL;
	unsigned e = 0;
	double d = 0;
	bool b = false;

	ok(arg_str(a, ARG("s"), &out, &s) == 1 && !strcmp(s, "x"), "string");
	eq_int(arg_str(a, ARG("l"), &out, &s), -EINVAL, "an array is no string");
	ok(strstr(error_of(), "'l'") != NULL, "the error names the argument");
	reset();
	ok(arg_bool(a, ARG("b"), &out, &b) == 1 && b, "a boolean as a word");
	eq_int(arg_bool(a, ARG("s"), &out, &b), -EINVAL, "x is no boolean");
	reset();
	ok(arg_enum(a, ARG("e"), words, &out, &e) == 1 && e == 1, "a word");
	eq_int(arg_enum(a, ARG("s"), words, &out, &e), -EINVAL, "another is refused");
	ok(strstr(error_of(), "\"one\", \"two\"") != NULL, "with the words there are");
	reset();
	ok(arg_object(a, ARG("o"), &out, &v) == 1 && cJSON_IsObject(v), "object");
	eq_int(arg_object(a, ARG("l"), &out, &v), -EINVAL, "an array is no object");
	reset();
	ok(arg_array(a, ARG("l"), &out, &v) == 1 && cJSON_IsArray(v), "array");
	ok(arg_num(a, ARG("f"), 0, 1, &out, &d) == 1 && d > 0.49 && d < 0.51, "a fraction");
	eq_int(arg_num(a, ARG("f"), 1, 2, &out, &d), -EINVAL, "out of range");
	reset();
	eq_int(arg_str(NULL, ARG("s"), &out, &s), 0, "no arguments at all");
	cJSON_Delete(a);
}

static void test_check(void)
{
	static const struct {
		const char *args;
		int r;
		const char *says;
	} cases[] = {
		{"{\"command\":\"x\"}", 0, ""},
		{"{\"cmd\":\"x\",\"workdir\":\"/\"}", 0, ""},
		{"{\"command\":\"x\",\"description\":\"lists\"}", 0, ""},
		{"{\"command\":\"x\",\"bogus\":null}", 0, ""},
		{"{\"command\":\"x\",\"bogus\":1}", -EINVAL, "bogus"},
		{"{\"command\":\"x\",\"old_str\":\"1\"}", -EINVAL, "old_str"},
		{"{\"cwd\":\"/\"}", -EINVAL, "'command' is missing"},
		{"{\"command\":null}", -EINVAL, "'command' is missing"},
	};
	cJSON *schema =
		json("{\"properties\":{\"command\":{},\"cwd\":{}},\"required\":[\"command\"]}");

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cJSON *a = json(cases[i].args);

		ok(args_check("t", schema, a, &out) == cases[i].r &&
			   strstr(error_of(), cases[i].says) != NULL &&
			   (!cases[i].r || strstr(error_of(), "command, cwd")),
		   "check %s", cases[i].args);
		reset();
		cJSON_Delete(a);
	}
	eq_int(args_check("t", schema, NULL, &out), -EINVAL,
	       "nothing, where something is required");
	reset();
	cJSON_Delete(schema);
}

/* Every other name that a handler reads has to pass the check before it. */
static void test_habits(void)
{
	cJSON *schema =
		json("{\"properties\":{\"path\":{},\"content\":{},\"glob\":{},\"before\":{},"
		     "\"after\":{},\"context\":{},\"case\":{},\"output_mode\":{},"
		     "\"max_matches\":{},\"max_entries\":{},\"job_id\":{}},"
		     "\"required\":[\"path\",\"content\",\"job_id\"]}");
	cJSON *a =
		json("{\"dir_path\":\"x\",\"contents\":\"x\",\"include\":\"x\",\"-A\":1,\"-B\":1,"
		     "\"-C\":1,\"-i\":true,\"-n\":true,\"head_limit\":1,\"limit\":1,"
		     "\"bash_id\":\"j1\"}");

	ok(!args_check("t", schema, a, &out) && !out.is_error, "habits of other tools: %s",
	   error_of());
	reset();
	cJSON_Delete(a);
	a = json("{\"directory\":\"x\",\"text\":\"x\",\"task_id\":\"j1\"}");
	eq_int(args_check("t", schema, a, &out), 0, "more of them");
	reset();
	cJSON_Delete(a);
	cJSON_Delete(schema);
}

int main(void)
{
	test_habits();
	test_int();
	test_others();
	test_check();
	return tap_done();
}
