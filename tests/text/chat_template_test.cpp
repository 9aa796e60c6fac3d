// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/chat_template.hpp>
#include <sstream>

namespace ostrakon::texts {
namespace {

using Json = nlohmann::ordered_json;

const std::string folder = std::string(OSTRAKON_SOURCE_DIR) + "/tests/text/";

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

ChatTemplate template_of(const std::string& name, const Json& variables) {
  return {read(folder + "chat_templates/" + name + ".jinja"), name + ".jinja", variables};
}

Json spans_of(const ChatText& chat) {
  Json spans = Json::array();
  for (const auto& span : chat.assistant) spans.push_back({span.begin, span.end});
  return spans;
}

/// The message of the Error that `render` throws; empty if it throws none.
std::string error_of(const std::function<void()>& render) {
  try {
    render();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string rendered(const std::string& source, const Json& more = Json::object()) {
  return ChatTemplate(source, "t", Json::object()).render({{{"role", "user"}}}, false, more);
}

std::string error_in(const std::string& source, const Json& more = Json::object()) {
  return error_of([&] { rendered(source, more); });
}

// chat_cases.py: what transformers makes of the chats.
TEST(ChatTemplate, TextsAreThoseOfTransformers) {
  const Json all = Json::parse(read(folder + "chat_cases.json"));
  int texts = 0, errors = 0, trained = 0;
  for (const Json& item : all["cases"]) {
    SCOPED_TRACE(item.dump());
    const ChatTemplate chat = template_of(item["template"], all["variables"]);
    if (!item.contains("text")) {
      ++errors;
      EXPECT_THROW(chat.render(item["messages"], item["prompt"], item["more"]), Error);
      continue;
    }
    ++texts;
    EXPECT_EQ(chat.render(item["messages"], item["prompt"], item["more"]), item["text"]);
    if (!item.contains("spans")) continue;
    ++trained;
    const ChatText text = chat.render_for_training(item["messages"], item["more"]);
    EXPECT_EQ(text.text, item["trained"]);
    EXPECT_EQ(spans_of(text), item["spans"]);
  }
  EXPECT_GE(texts, 250);
  EXPECT_GE(errors, 20);
  EXPECT_GE(trained, 20);
}

TEST(ChatTemplate, WhatIsLackingIsRefusedWithItsLine) {
  const std::pair<const char*, const char*> rows[] = {
      {"a\n{{ x | urlize }}", "t:2: the filter 'urlize' is not implemented"},
      {"{% if x is escaped %}{% endif %}", "t:1: the test 'escaped' is not implemented"},
      {"{% block a %}{% endblock %}", "t:1: the block 'block' is not implemented"},
      {"{% call m() %}{% endcall %}", "t:1: the block 'call' is not implemented"},
      {"{% for a in b recursive %}{% endfor %}", "t:1: recursive loops are not implemented"},
      {"{{ caller() }}", "t:1: the variable 'caller' is not implemented"},
      {"{{ f(*x) }}", "t:1: arguments with '*' are not implemented"},
      {"{{ 'a'.center(3) }}", "t:1: 'center' of a str is not implemented"},
      {"{{ '%s' % 1 }}", "t:1: formatting by '%' is not implemented"},
      {"{{ 9223372036854775807 + 1 }}", "t:1: integers of more than 64 bits are not implemented"},
      {"{{ messages.append(1) }}", "t:1: 'append' would change a list, which templates may not"},
      {"\n\n{{ a.b }}", "t:3: 'a' is undefined"},
      {"{{ messages[0].x.y }}", "t:1: a dict has no attribute 'x'"},
      {"{{ raise_exception('no ' ~ 1) }}", "t:1: the template refuses the chat: no 1"},
      {"{{ 'a' + 1 }}", "t:1: a str + a int has no meaning"},
      {"{% if true %}\na", "t:2: the template ends before '{% endif %}'"},
      {"{{ 'a }}", "t:1: a string has no end '"},
      {"{{ (1 }}", "t:1: unexpected '}'"},
      {"{# a", "t:1: a comment has no end '#}'"},
      {"{% break %}", "t:1: 'break' outside of a loop"},
  };
  for (const auto& [source, message] : rows) EXPECT_EQ(error_in(source), message) << source;
}

TEST(ChatTemplate, NoTemplateRunsForeverOrOverflowsTheStack) {
  const auto nested = [](const std::string& begin, const std::string& end, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += begin;
    for (int i = 0; i < count; ++i) all += end;
    return all;
  };
  const std::pair<std::string, const char*> rows[] = {
      {"{{ " + nested("(", ")", 100000) + " }}", "nested deeper"},
      {"{{ " + nested("-", "", 100000) + "1 }}", "nested deeper"},
      {"{{ 1" + nested("+1", "", 100000) + " }}", "nested deeper"},
      {"{{ x" + nested("|trim", "", 100000) + " }}", "nested deeper"},
      {nested("{% if 1 %}", "{% endif %}", 100000), "nested deeper"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper"},
      {"{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}",
       "nested deeper"},
      {"{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}"
       "{% endfor %}",
       "more than"},
      {"{% set n = namespace(x='ab') %}{% for i in range(100) %}{% set n.x = n.x ~ n.x %}"
       "{% endfor %}",
       "longer than"},
      {"{{ 'a' * 1000000000000 }}", "too long"},
      {"{{ range(10000000) }}", "more than"},
      {"{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}"
       "{% endfor %}{% endfor %}{% endfor %}",
       "takes too long"},
      {"{% set n = namespace() %}{% set n.x = n %}", "inside of a list, dict or namespace"},
  };
  for (const auto& [source, message] : rows)
    EXPECT_NE(error_in(source).find(message), std::string::npos)
        << source.substr(0, 100) << ": " << error_in(source);
}

/// What an assistant wrote where no block says so: as marked here by brackets, which the templates
/// do not write.
TEST(ChatTemplate, TurnsAreFoundWithoutBlocksOfGeneration) {
  const std::string last_turn_thinks =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}"
      "<think>{{ m.thought }}</think>{% endif %}{{ m.content | trim }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  const auto message = [](const char* role, const char* content) {
    return Json({{"role", role}, {"content", content}});
  };
  const Json chat = {message("user", "q"),   message("assistant", "foo "),
                     message("user", "foo"), message("assistant", ""),
                     message("user", "r"),   message("assistant", "end")};
  const ChatTemplate thinks(last_turn_thinks, "t", Json::object());
  const ChatText found = thinks.render_for_training(chat, Json::object());
  std::string marked = found.text;
  for (auto span = found.assistant.rbegin(); span != found.assistant.rend(); ++span)
    marked.insert(span->end, "]").insert(span->begin, "[");
  EXPECT_EQ(marked,
            "<user>q<end><assistant>[foo<end>]<user>foo<end><assistant>[<end>]<user>r<end>"
            "<assistant>[<think></think>end<end>]");

  const auto error = [&](const std::string& source) {
    const ChatTemplate wrong(source, "t", Json::object());
    return error_of([&] { wrong.render_for_training(chat, Json::object()); });
  };
  EXPECT_EQ(error("{{ messages | length }}{{ add_generation_prompt }}"),
            "t: the text that asks for message 2 of 6 does not begin the text of the chat; put "
            "blocks '{% generation %}' around what an assistant writes");
  EXPECT_EQ(error("{% for m in messages %}{{ loop.revindex if m.role == 'assistant' }}"
                  "{% endfor %}"),
            "t: where the text of message 2 of 6 ends can't be found, as the template writes it in "
            "another way when others follow; put blocks '{% generation %}' around what an "
            "assistant writes");
  EXPECT_EQ(error("a\n{% set x %}{% generation %}{% endgeneration %}{% endset %}"),
            "t:2: where a block 'generation' inside of a macro, or of a block 'set', 'filter' or "
            "'generation', stands in the text is not known");
}

}  // namespace
}  // namespace ostrakon::texts
