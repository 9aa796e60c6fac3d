// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/clock.hpp>
#include <ostrakon/watch/channel.hpp>
#include <ostrakon/watch/contact.hpp>
#include <string>
#include <vector>

namespace ostrakon::watch {
namespace {

TEST(Contacts, ReadBack) {
  Contact contact;
  contact.token = ~std::uint64_t{0};
  contact.rank_in_plans = 7;
  contact.host = "n012";
  contact.address = {4711, {"10.0.0.1", "fe00::1", "127.0.0.1"}};
  contact.trouble = "no TCP port: too many open files";
  for (const bool has_hosts : {true, false}) {
    if (!has_hosts) contact.address.hosts.clear();
    const Contact back = Contact::of_text(contact.to_text());
    EXPECT_EQ(back.token, contact.token);
    EXPECT_EQ(back.rank_in_plans, 7);
    EXPECT_EQ(back.host, "n012");
    EXPECT_EQ(back.address.port, 4711);
    EXPECT_EQ(back.address.hosts, contact.address.hosts);
    EXPECT_EQ(back.trouble, contact.trouble);
  }
}

TEST(Connections, CarryFramesUntilTheOtherEndCloses) {
  const Bell bell;
  Listener listener;
  std::vector<Connection> here = connect(listener.address(), 3);
  ASSERT_FALSE(here.empty());
  Frame sent;
  sent.token = 42;
  sent.kind = Frame::Kind::alarm;
  sent.set_text("why");
  for (Connection& one : here) one.send(sent);

  std::vector<Connection> there;
  std::vector<Frame> got;
  const double last = seconds_now() + 20.0;
  while (got.empty() && seconds_now() < last) {
    wait_for_any({bell.descriptor(), listener.descriptor()}, here, 0.1);
    for (Connection& one : here) one.flush();
    for (Connection& one : listener.accept()) there.push_back(std::move(one));
    for (Connection& one : there)
      for (const Frame& frame : one.receive()) got.push_back(frame);
  }
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(got[0].token, 42U);
  EXPECT_EQ(got[0].kind, Frame::Kind::alarm);
  EXPECT_EQ(got[0].text(), "why");
  there.clear();
  const auto is_any_open = [&] {
    bool any = false;
    for (Connection& one : here) {
      one.receive();
      any = any || one.is_open();
    }
    return any;
  };
  while (is_any_open() && seconds_now() < last) {
    for (Connection& one : listener.accept()) one.close();
    wait_for_any({}, here, 0.1);
  }
  EXPECT_FALSE(is_any_open());
}

}  // namespace
}  // namespace ostrakon::watch
