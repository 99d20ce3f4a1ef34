//! What a server decides over all its replicas: which model answers, and what it gives up first when there is too much
//! to do.
