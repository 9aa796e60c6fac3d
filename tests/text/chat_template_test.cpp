// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/chat_template.hpp>

#include "support/messages.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::texts {
namespace {

using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::write_bytes;

using Json = nlohmann::ordered_json;

const std::string folder = std::string(OSTRAKON_SOURCE_DIR) + "/tests/text/";

ChatTemplate template_of(const std::string& name, const Json& variables) {
  return {read_bytes(folder + "chat_templates/" + name + ".jinja"), name + ".jinja", variables};
}

Json spans_of(const ChatText& chat) {
  Json spans = Json::array();
  for (const auto& span : chat.assistant) spans.push_back({span.begin, span.end});
  return spans;
}

std::string rendered(const std::string& source, const Json& more = Json::object()) {
  return ChatTemplate(source, "t", Json::object()).render({{{"role", "user"}}}, false, more);
}

std::string error_in(const std::string& source, const Json& more = Json::object()) {
  return error_of([&] { rendered(source, more); });
}

// chat_cases.py: what transformers makes of the chats.
TEST(ChatTemplate, TextsAreThoseOfTransformers) {
  const Json all = Json::parse(read_bytes(folder + "chat_cases.json"));
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

// Expected: what Jinja 3.1 prints with y = 1.
TEST(ChatTemplate, NamesAreThoseOfTheirScopes) {
  const std::pair<const char*, const char*> rows[] = {
      {"{% for x in [1] %}{{ y }}{% endfor %}{% set y = 2 %}{{ y }}", "2"},
      {"{{ y }}{% for x in [1] %}{{ y }}{% endfor %}{% set y = 2 %}{{ y }}", "112"},
      {"{% if false %}{% set y = 2 %}{% endif %}{{ y }}", "1"},
      {"{% macro m() %}{{ y }}{% endmacro %}{{ m() }}{% set y = 2 %}{{ m() }}", "2"},
      {"{% for i in [1, 2] %}{{ y }}{% set y = i %}{{ y }}{% endfor %}{{ y }}", "11121"},
      {"{% for i in [1, 2] %}{% if i == 2 %}{% set z = i %}{% endif %}{{ z }}{% endfor %}{{ z }}",
       "2"},
      {"{% set y = 3 %}{% macro m(y, z=y) %}{{ y }}{{ z }}{% endmacro %}{{ m(4) }}{{ m(z=5) }}{{ y "
       "}}",
       "4453"},
      {"{% set t %}{% set y = 7 %}{{ y }}{% endset %}{{ t }}{{ y }}", "71"},
      {"{% generation %}{% set y = 8 %}{{ y }}{% endgeneration %}{{ y }}", "81"},
      {"{% for i in [1, 2] %}{% continue %}{% else %}none{% endfor %}{% for i in [1] %}{% break "
       "%}{% else %}left{% endfor %}",
       "noneleft"},
      {"{% for i in [3, 4] if i > 3 %}{{ loop.index }}{{ loop.length }}{{ i }}{% endfor %}{{ i }}",
       "114"},
      {"{% set ns = namespace(a=1) %}{% for i in [5] %}{% set ns.a = i %}{% endfor %}{{ ns.a }}{{ "
       "ns['a'] }}{{ ns.b }}",
       "55"},
      {"{% set g = [1, 2, 3] | select %}{{ g | first }}{{ g | list }}{{ g | list }}", "1[2, 3][]"},
      {"{% with y = 9, z = y %}{{ y }}{{ z }}{% endwith %}{{ y }}{{ z }}", "911"},
  };
  for (const auto& [source, text] : rows) EXPECT_EQ(rendered(source, {{"y", 1}}), text) << source;
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
      {"{% for m in messages %}a", "t:1: the template ends before '{% endfor %}'"},
      {"{{ 'a }}", "t:1: a string has no end '"},
      {"{{ (1 }}", "t:1: unexpected '}'"},
      {"{# a", "t:1: a comment has no end '#}'"},
      {"{% break %}", "t:1: 'break' outside of a loop"},
  };
  for (const auto& [source, message] : rows) EXPECT_EQ(error_in(source), message) << source;
}

TEST(ChatTemplate, NumbersOfJsonThatMayHaveBeenIntegersAreRefused) {
  for (const char* number : {"9223372036854775808", "18446744073709551616", "-1e19"})
    EXPECT_HAS(error_in("{{ x }}", {{"x", Json::parse(number)}}), "not implemented");
  EXPECT_EQ(rendered("{{ x }}", {{"x", Json::parse("[9223372036854775807, 1e18]")}}),
            "[9223372036854775807, 1e+18]");
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
    EXPECT_HAS(error_in(source), message) << source.substr(0, 100);
  for (const int depth : {199, 200, 100000}) {
    Json more, deep = Json::array();
    for (int i = 1; i < depth; ++i) {
      Json outer = Json::array();
      outer.push_back(std::move(deep));
      deep = std::move(outer);
    }
    more["x"] = std::move(deep);
    EXPECT_HAS(error_in("{{ x | tojson }}", more),
               depth == 199 ? "no error" : "nested deeper than 200");
  }
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

using Files = std::map<std::string, std::string>;  // contents by names

/// A folder of a model with files.
class ModelFolder {
 public:
  explicit ModelFolder(const Files& files) {
    for (const auto& [name, content] : files) {
      std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
      write_bytes(path(name), content);
    }
  }
  std::string path() const { return path("."); }
  std::string path(const std::string& name) const { return folder_.file(name); }

 private:
  ostrakon::testing::ScratchFolder folder_;
};

TEST(ChatTemplate, IsFoundInTheFolderOfAModel) {
  const std::string tokens =
      R"("bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": true,
         "extra_special_tokens": {"image_token": "<i>"})";
  const std::string read = "{{ bos_token }}{{ eos_token }}{{ image_token }}{{ add_bos_token }}";
  const Json chat = {{{"role", "user"}}}, none = Json::object();
  const auto text = [&](const ModelFolder& model, const Json& more) {
    return ChatTemplate::of_folder(model.path()).render(chat, false, more);
  };
  const Json tools = {{"tools", Json::array()}};

  const ModelFolder in_file(
      Files{{"tokenizer_config.json", "{" + tokens + R"(, "chat_template": "b"})"},
            {"chat_template.jinja", read},
            {"additional_chat_templates/tool_use.jinja", "tools"},
            {"other.jinja", "other {{ bos_token }}"}});
  EXPECT_EQ(text(in_file, none), "<s></s><i>");
  EXPECT_EQ(text(in_file, tools), "tools");
  EXPECT_EQ(
      ChatTemplate::of_file(in_file.path("other.jinja"), in_file.path()).render(chat, false, none),
      "other <s>");
  const ModelFolder in_config(
      Files{{"tokenizer_config.json", "{" + tokens + R"(, "chat_template": "{{ eos_token }}"})"}});
  EXPECT_EQ(text(in_config, none), "</s>");
  const ModelFolder several(
      Files{{"tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
                                    {"name": "tool_use", "template": "t"}]})"}});
  EXPECT_EQ(text(several, none), "d");
  EXPECT_EQ(text(several, tools), "t");
  const ModelFolder old(Files{{"chat_template.json", R"({"chat_template": "old"})"}});
  EXPECT_EQ(text(old, none), "old");

  const auto error = [&](const ModelFolder& model) { return error_of([&] { text(model, none); }); };
  EXPECT_HAS(error(ModelFolder(Files{{"a", ""}})), "has no chat template");
  EXPECT_HAS(error(ModelFolder(Files{{"tokenizer_config.json", R"({"chat_template": 3})"}})),
             "neither a string nor a list");
  EXPECT_HAS(error(ModelFolder(Files{{"tokenizer_config.json", "{"}})), "is no JSON object");
  const ModelFolder broken(Files{{"chat_template.jinja", "a\n{% if %}"}});
  EXPECT_EQ(error(broken),
            broken.path() + "/chat_template.jinja" + ":2: expected an expression, found '%}'");
}

}  // namespace
}  // namespace ostrakon::texts
