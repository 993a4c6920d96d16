// Documents made by hand: nothing in a name becomes markup, and what goes in comes out.
#include <gtest/gtest.h>

#include "plimsoll/document.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

Document small_document() {
  Document document;
  document.title = "toy";
  document.verdict = "tight";
  document.answer = "tight: toy on 8xtest";
  document.command = "plimsoll estimate toy --on 8xtest";
  document.made = "plimsoll 0.1.0, 2026-11-30";
  document.tables = {{"memory", {{"what", "what"}, {"memory", "bytes"}}, {{{"a", "a"}, {"1.00 GiB", "1073741824"}}, {{"b", "b"}, {"-", "-5"}}}}};
  document.listings = {{"notes", {"one"}}};
  document.text = "tight: toy\n";
  return document;
}

TEST(Csv, HoldsKeysAndExactValues) { EXPECT_EQ(to_csv(small_document()), "what,bytes\r\na,1073741824\r\nb,-5\r\n"); }

TEST(Csv, QuotesWhatTheFormatNeedsQuotedAndDefusesFormulas) {
  Document document = small_document();
  document.tables[0].rows = {{{"", "a,b"}, {"", "say \"no\""}}, {{"", "=1+1"}, {"", "@x"}}, {{"", "line\nbreak"}, {"", "-1.5e+3"}}};
  EXPECT_EQ(to_csv(document), "what,bytes\r\n\"a,b\",\"say \"\"no\"\"\"\r\n'=1+1,'@x\r\n\"line\nbreak\",-1.5e+3\r\n");
}

TEST(Csv, OfADocumentWithoutATableIsADefect) { EXPECT_THROW(to_csv(Document{}), Error); }

TEST(Markdown, BeginsWithTheAnswerAndFlushesNumbersRight) {
  const std::string text = to_markdown(small_document());
  EXPECT_EQ(text.find("### ⚠️ tight: toy on 8xtest\n"), 0U);
  EXPECT_NE(text.find("| what | memory |\n| --- | ---: |\n| a | 1.00 GiB |\n"), std::string::npos) << text;
  EXPECT_NE(text.find("<details><summary>notes (1)</summary>\n\n- one\n"), std::string::npos) << text;
}

TEST(Markdown, ANameIsNoMarkup) {
  Document document = small_document();
  document.tables[0].rows[0][0].shown = "a|b <i> `c` _d_";
  EXPECT_NE(to_markdown(document).find("a\\|b \\<i\\> \\`c\\` \\_d\\_"), std::string::npos) << to_markdown(document);
}

TEST(Markdown, OfALongTableSaysHowManyRowsAreLeftOut) {
  Document document = small_document();
  document.tables[0].rows.assign(25, {{"a", "a"}, {"1", "1"}});
  EXPECT_NE(to_markdown(document).find("\n… and 5 more\n"), std::string::npos);
}

TEST(Html, EndsNoScriptEarlyAndEscapesWhatItShows) {
  Document document = small_document();
  document.answer = "</script><script>alert(1)</script> & \"x\"";
  document.text = document.answer + "\n";
  const std::string page = to_html(document);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_NE(page.find("&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;x&quot;"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>"), std::string::npos);  // inside the JSON
}

TEST(Html, LoadsNothing) {
  const std::string page = to_html(small_document());
  for (const char* loading : {" src=", " href=", "@import", "url("}) EXPECT_EQ(page.find(loading), std::string::npos) << loading;
}

}  // namespace
}  // namespace plimsoll
