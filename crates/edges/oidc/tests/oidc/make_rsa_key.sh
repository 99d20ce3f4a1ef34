#!/bin/sh
# Makes the RSA key that the tests' provider signs with: `ring` verifies RSA signatures and makes them, but makes no keys.
# It protects nothing.
set -eu
cd "$(dirname "$0")"
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 |
    openssl pkcs8 -topk8 -nocrypt -outform DER |
    base64 -w 100 > rsa_key.base64
