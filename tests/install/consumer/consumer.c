/* A C program: the one function of the installed package. */
#include <plimsoll/plimsoll.h>
#include <stdio.h>
#include <string.h>

static int answers(const char* request, const char* wanted) {
  char* answer = plimsoll_call(request);
  int found = answer != NULL && strstr(answer, wanted) != NULL;
  if (!found) fprintf(stderr, "%s\nanswered without %s:\n%s\n", request, wanted, answer ? answer : "(null)");
  plimsoll_free(answer);
  return found;
}

int main(void) {
  int good = answers("{\"command\":\"estimate\",\"model\":\"gpt2\",\"on\":\"1xh100-sxm\",\"strategy\":{\"micro_batch\":8,\"seq_len\":1024}}",
                     "\"schema\": \"plimsoll/estimate/1\"");
  good &= answers("{\"command\":\"models\"}", "llama-3.1-8b");
  good &= answers("{\"command\":\"models\",\"model\":\"gtp2\"}", "did you mean 'gpt2'?");
  good &= answers("{\"command\":\"estmate\"}", "did you mean 'estimate'?");
  good &= answers("{\"command\":", "plimsoll/error/1");
  good &= answers(NULL, "plimsoll/error/1");
  return good ? 0 : 1;
}
