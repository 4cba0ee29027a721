// The targets of precompiled headers need a source.
int main() { return 0; }
