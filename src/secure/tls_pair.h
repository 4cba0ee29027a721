// For tests: both ends of a TLS connection in one thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "secure/stream.h"

namespace qccl::secure {

inline Key key_of(std::string text = "sixteen bytes, or more") { return Key::from_text(text, "test").take_or_throw(); }

// A TLS connection between two connected sockets, ready to carry frames.
inline void encrypt(Stream& client, Stream& server);

struct TlsPair {
  Stream client, server;

  // The server knows only the identity "one to two".
  explicit TlsPair(std::string_view client_key = "sixteen bytes, or more", std::string identity = "one to two") {
    auto sockets = os::socket_pair().take_or_throw();
    begin(Stream(std::move(sockets.first)), Stream(std::move(sockets.second)), client_key, identity);
  }
  TlsPair(Stream one, Stream other) { begin(std::move(one), std::move(other), "sixteen bytes, or more", "one to two"); }

  void begin(Stream one, Stream other, std::string_view client_key, const std::string& identity) {
    client = std::move(one);
    server = std::move(other);
    const Key own = key_of(std::string(client_key));
    client.set_tls(Tls::client(client.get(), {identity, own.derive(identity)}).take_or_throw());
    server.set_tls(Tls::server(server.get(), [](std::string_view asked) -> Result<Secret> {
                     if (asked != "one to two") return Failure(ErrorKind::misuse, "calls itself " + std::string(asked));
                     return key_of().derive(asked);
                   }).take_or_throw());
  }

  // Alternates until both are done, or one has failed and the other has seen it. The first failure of each.
  struct Outcome {
    Status client, server;
  };
  Outcome shake_hands() {
    Outcome outcome;
    bool client_done = false, server_done = false;
    for (int turn = 0; turn < 10 && !(client_done && server_done); ++turn) {
      step(client, client_done, outcome.client);
      step(server, server_done, outcome.server);
    }
    EXPECT_TRUE(client_done && server_done);
    return outcome;
  }
  void join() {
    Outcome outcome = shake_hands();
    outcome.client.take_or_throw();
    outcome.server.take_or_throw();
  }

 private:
  static void step(Stream& end, bool& is_done, Status& status) {
    if (is_done) return;
    Result<bool> done = end.tls()->shake_hands();
    is_done = !done.ok() || *done;
    if (!done.ok()) status = done.failure();
  }
};

inline void encrypt(Stream& client, Stream& server) {
  TlsPair pair(std::move(client), std::move(server));
  pair.join();
  client = std::move(pair.client);
  server = std::move(pair.server);
  for (Stream* end : {&client, &server}) end->tls()->read_ahead();
}

}  // namespace qccl::secure
