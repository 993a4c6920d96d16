/* plimsoll for every other language: one function, JSON in and JSON out (docs/c-api.md). */
#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#ifdef __cplusplus
extern "C" {
#endif

/* Answers one request, a JSON object:
 *   {"command":"estimate","model":M,"on":C,"strategy":{…}}   a plimsoll/estimate/1 object
 *   {"command":"estimate","from":[FILE…],"launch":[WORD…]}   the same of other programs' files or a launch line, with "model" and "on"
 * where these do not say them; "explain", "view", "report" and "export" take them too
 *   {"command":"read","from":[FILE…]}                    what each key of such files became, and where from
 *   {"command":"view","model":M,"on":C,"strategy":{…}}       the same with what takes the memory and the course of the step
 *   {"command":"models"}                                     the shipped models
 *   {"command":"version"}
 * and others: docs/c-api.md has the table.
 * M is a shipped model's name, a path, or a whole config object; C a cluster ("8xmi300x") or a path.
 * The answer is never NULL unless memory is exhausted; what goes wrong is an object {"schema":"plimsoll/error/1","error":{…}}.
 * Nothing is thrown. Safe to call from several threads. Release the answer with plimsoll_free. */
char* plimsoll_call(const char* request_json);

void plimsoll_free(char* answer);

#ifdef __cplusplus
}
#endif

#endif
